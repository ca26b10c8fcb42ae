//! What the page makes of events that no service sends within a test: the test writes the stream.

use serde_json::{Value, json};

use super::super::{RULES, ask, state_with, sum};
use super::{HAS_STATE, click, has_text, submit};
use crate::support::chromium::{Chromium, Colors};
use crate::support::process::Ratelimitd;

/// Replaces the stream, and the paths of `answers`.
const SCRIPT: &str = "
    const real = window.fetch, answers = window.answers = {};
    window.asked = [];
    window.fetch = async (path, options) => {
        window.asked.push(path);
        if (answers[path]) return answers[path]();
        if (path !== '/console/events') return real(path, options);
        return new Response(new ReadableStream({ start: (to) => { window.stream = to; } }));
    };
    window.send = (name, data) => {
        window.stream.enqueue(new TextEncoder().encode(`event: ${name}\\nid: 1\\ndata: ${JSON.stringify(data)}\\n\\n`));
    };
";

/// A page, and a state with a denied key that it shows.
fn open(service: &Ratelimitd) -> (Chromium, Value) {
    for _ in 0..2 {
        ask(service, "edge", &[("user", "ann@example.org")]);
    }
    let state = state_with(service, "a denied key", |state| sum(state, "denied") == 1);
    let mut browser = Chromium::start(Colors::Light);
    browser.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": SCRIPT}));
    let url = format!("http://localhost:{}/console", service.admin_port());
    browser.call("Page.navigate", json!({"url": url}));
    browser.wait_until("window.stream && document.querySelector('#tabs')");
    send(&mut browser, "state", &state);
    browser.wait_until(HAS_STATE);
    (browser, state)
}

fn send(browser: &mut Chromium, name: &str, data: &Value) {
    browser.evaluate(&format!("send('{name}', {data})"));
}

/// How often the page has asked for a path.
fn asked(browser: &mut Chromium, path: &str) -> Value {
    browser.evaluate(&format!("asked.filter((path) => path === '{path}').length"))
}

#[test]
fn fetched_rules_are_a_minute_old_at_most() {
    let service = Ratelimitd::start(RULES);
    let (mut browser, mut state) = open(&service);
    let end = state["end"].as_u64().expect("a time");
    let mut other = state["rules"]["list"][0].clone();
    (other["id"], other["rule"]) = (json!(77), json!("another-rule"));
    let all = |rules: Value| {
        format!(
            "answers['/console/state?rules=all'] = () => new Response({:?}); 0",
            json!({"rules": {"list": rules}}).to_string()
        )
    };
    browser.evaluate(&all(json!([state["rules"]["list"][0], other])));
    state["rules"]["idle"] = json!(0);
    send(&mut browser, "state", &state);
    click(&mut browser, "#tabs [data-key=busy]");
    browser.wait_until(&has_text("#rule-table tbody", "another-rule"));
    // By now it is not denied, and nobody asks the page for more rules.
    click(&mut browser, "#tabs [data-key=denying]");
    browser.wait_until(&has_text("#rule-table tbody", "another-rule"));
    state["end"] = json!(end + 61);
    send(&mut browser, "state", &state);
    browser.wait_until(&format!("!({})", has_text("#rule-table tbody", "another-rule")));
    assert_eq!(asked(&mut browser, "/console/state?rules=all"), 1);
    browser.evaluate(&all(json!([state["rules"]["list"][0]])));
    click(&mut browser, "#tabs [data-key=busy]");
    browser.wait_until("asked.filter((path) => path === '/console/state?rules=all').length === 2");
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

#[test]
fn a_clock_that_steps_stops_nothing() {
    let service = Ratelimitd::start(RULES);
    let (mut browser, mut state) = open(&service);
    let end = state["end"].as_u64().expect("a time");
    let mut see = |browser: &mut Chromium, end: u64, rows: u64| {
        state["end"] = json!(end);
        state["live"] =
            json!({"text": format!("{rows} blocks"), "source": "process", "version": rows.to_string()});
        send(browser, "state", &state);
        browser.wait_until(&has_text("#live-of", &format!("{rows} blocks")));
    };
    see(&mut browser, end, 1);
    assert_eq!(asked(&mut browser, "/exceptions/list"), 1);
    see(&mut browser, end - 3_600, 2);
    assert_eq!(asked(&mut browser, "/exceptions/list"), 2);
    let second = json!({"requests": 1, "denied": 0, "failed": 0, "policy": 0, "shadow": 0, "p50_us": null,
        "p99_us": null, "store_p99_us": null});
    let sample = json!({"end": end + 1_000_000, "sample": second, "rules": [], "keys": [], "marks": [],
        "reasons": [], "fleet": "3 instances", "live": null});
    send(&mut browser, "sample", &sample);
    browser.wait_until(&has_text("#fleet", "3 instances"));
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

#[test]
fn a_row_that_has_gone_while_the_page_was_paused_is_told() {
    let service = Ratelimitd::start(RULES);
    let (mut browser, mut state) = open(&service);
    for action in ["look", "reset", "except"] {
        send(&mut browser, "state", &state);
        browser.wait_until("document.querySelector('#key-table [data-do]')");
        browser.evaluate("document.querySelector('#status').textContent = ''");
        browser.press("p", 80);
        browser.wait_until(&has_text("#live", "paused"));
        let keys = state["keys"].take();
        state["keys"] = json!([]);
        send(&mut browser, "state", &state);
        // The page has taken the event once the next one is taken.
        browser.evaluate("new Promise((go) => setTimeout(go))");
        click(&mut browser, &format!("#key-table [data-do={action}]"));
        browser.wait_until(&has_text("#status", "This row has gone."));
        browser.wait_until("!document.querySelector('#key-table [data-do]')");
        state["keys"] = keys;
        browser.press("p", 80);
    }
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

#[test]
fn a_page_with_numbers_asks_for_a_new_token_until_it_has_one() {
    let service = Ratelimitd::start(RULES);
    let (mut browser, state) = open(&service);
    browser.evaluate(
        "answers['/console/events'] = () => new Response('wrong token', { status: 401 });
        stream.close(); 0",
    );
    browser.wait_until(&has_text("dialog", "This service needs a token"));
    click(&mut browser, "dialog [data-do=close]");
    assert_eq!(browser.evaluate("document.body.classList.contains('stale')"), true);
    click(&mut browser, "#live button");
    browser.evaluate("delete answers['/console/events']; window.stream = null; 0");
    submit(&mut browser, &[("token", "a token")]);
    browser.wait_until("window.stream");
    send(&mut browser, "state", &state);
    browser.wait_until("document.querySelector('#live').textContent === 'live'");
    assert_eq!(browser.evaluate("document.body.classList.contains('stale')"), false);
}
