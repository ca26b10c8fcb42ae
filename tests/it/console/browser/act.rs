//! Actions on a row: a look, a reset, an exception and its end.

use serde_json::{Value, json};

use super::super::{RULES, ask, post, state_with};
use super::{click, has_text, open, submit};
use crate::support::process::{Plan, Ratelimitd};

fn remaining(service: &Ratelimitd, user: &str) -> u64 {
    let body = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": user}]}]});
    let answer = post(service, "/counters/show", &body, "").body;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    answer["counters"][0]["remaining"].as_u64().expect("a number")
}

#[test]
fn a_look_changes_nothing_and_a_reset_one_counter() {
    let service = Ratelimitd::start(RULES);
    for user in ["ann", "ann", "bob"] {
        ask(&service, "edge", &[("user", user)]);
    }
    let mut browser = open(&service);
    click(&mut browser, "#key-table [data-do=look]");
    browser.wait_until(&has_text("#key-table .look", "1 of 1 used, a request now is denied"));
    assert_eq!([remaining(&service, "ann"), remaining(&service, "bob")], [0, 0]);
    click(&mut browser, "#key-table [data-do=look]");
    browser.wait_until("!document.querySelector('#key-table .look')");

    click(&mut browser, "#key-table [data-do=reset]");
    // The browser refuses an empty reason, the service one of spaces.
    submit(&mut browser, &[("reason", "")]);
    assert_eq!(browser.evaluate("document.querySelector('dialog form').checkValidity()"), false);
    submit(&mut browser, &[("reason", " ")]);
    browser.wait_until(&has_text("dialog [role=alert]", "a reason of 1 to 200 characters"));
    submit(&mut browser, &[("reason", "INC-42")]);
    browser.wait_until(&has_text("#key-table .look", "0 of 1 used, a request now is OK"));
    assert_eq!([remaining(&service, "ann"), remaining(&service, "bob")], [1, 0]);

    let changed = RULES.replace("requests_per_unit: 1,", "requests_per_unit: 2,");
    std::fs::write(service.rules().join("rules.yaml"), changed).expect("a rule file");
    browser.wait_until(&has_text("#in-force", "changed 1 time since startup"));
    click(&mut browser, "#key-table [data-do=reset]");
    submit(&mut browser, &[("reason", "INC-42")]);
    browser.wait_until(&has_text("dialog [role=alert]", "of this row has changed"));
}

#[test]
fn a_request_now_is_denied_only_if_the_limit_denies() {
    const RULES: &str = "
domain: edge
descriptors:
  - { key: open, rate_limit: { unlimited: true, count: true, unit: year, algorithm: fixed_window } }
  - { key: soft, rate_limit: { unit: year, requests_per_unit: 1, algorithm: fixed_window, on_over: announce } }
  - { key: trial, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1, algorithm: fixed_window } }
  - { key: user, rate_limit: { unit: year, requests_per_unit: 1, algorithm: fixed_window } }
";
    let service = Ratelimitd::start(RULES);
    let table = [
        ("open", "2 used (edge.open, "),
        ("soft", "2 of 1 used, next unit in "),
        ("trial", "1 of 1 used, next unit in "),
        ("user", "1 of 1 used, a request now is denied, "),
    ];
    for (key, _) in table {
        for _ in 0..2 {
            ask(&service, "edge", &[(key, "ann")]);
        }
    }
    let mut browser = open(&service);
    for (key, told) in table {
        browser.evaluate(&format!(
            "(() => {{
                const form = document.querySelector('#ask');
                form.elements.domain.value = 'edge';
                form.elements.entries.value = '{key}=ann';
                form.requestSubmit();
            }})()"
        ));
        browser.wait_until(&has_text("#answer", &format!("{key}=ann")));
        let answer = browser.texts("#answer > div").remove(0);
        assert!(answer.starts_with(told), "{key}: {answer}");
    }
    // The last denial decided by a limit that an exception has replaced since.
    let row = json!({"domain": "edge", "key": "user", "value": "ann", "exempt": true, "until": "1h"});
    let set = post(&service, "/exceptions/set", &json!({"rows": [row], "reason": "a test"}), "");
    assert_eq!(set.status, 200, "{}", set.body);
    browser.wait_until(&has_text("#key-table .badge.exempt", "exempt until "));
    let rows = "[...document.querySelectorAll('#key-table [data-do=look]')]";
    browser.evaluate(&format!("{rows}.forEach((button) => button.click())"));
    browser.wait_until("document.querySelectorAll('#key-table .look b').length === 3");
    let looks = browser.texts("#key-table .look");
    assert!(looks.iter().all(|look| !look.contains("a request now")), "{looks:?}");
}

/// The texts of the page, shown or not.
const EVERYTHING: &str = "document.documentElement.outerHTML + document.documentElement.innerText";

fn reset(service: &Ratelimitd, user: &str) {
    let body = json!({
        "domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": user}]}], "reason": "a test",
    });
    assert_eq!(post(service, "/counters/reset", &body, "").status, 200);
}

#[test]
fn an_attacker_is_blocked_without_its_value_and_passes_once_the_row_is_removed() {
    const ATTACKER: &str = "mallory@example.org";
    let service = Ratelimitd::start(RULES);
    for _ in 0..3 {
        ask(&service, "edge", &[("user", ATTACKER)]);
    }
    let mut browser = open(&service);
    click(&mut browser, "#key-table [data-do=except]");
    browser.wait_until(&has_text(
        "dialog p",
        "Every limit of the domain denies these requests. 1 key on this page",
    ));
    assert_eq!(browser.evaluate("document.querySelector('dialog [name=reason]').value"), "from the console");
    click(&mut browser, "dialog [name=go]");
    browser.wait_until(&has_text("#key-table .badge.block", "blocked until "));
    browser.wait_until(&has_text("#key-table .badge.block", " (live row "));
    assert!(ask(&service, "edge", &[("user", ATTACKER)]));
    state_with(&service, "a blocked request", |state| state["exceptions"]["block"]["requests_15m"] == 1);
    assert!(!ask(&service, "edge", &[("user", "ann")]));

    browser.wait_until(&has_text("#live-of", "1 live exception: 1 block"));
    browser.wait_until(&has_text("#live-table tbody tr", "user=ma…#"));
    let cells = browser.texts("#live-table tbody tr > *");
    assert_eq!([&*cells[1], &*cells[3], &*cells[4]], ["block", "from the console", "operator"], "{cells:?}");
    click(&mut browser, "#live-table [data-do=remove]");
    submit(&mut browser, &[("reason", "it was a test")]);
    browser.wait_until("document.querySelector('#live-rows').hidden");
    browser.wait_until("!document.querySelector('#key-table .badge')");
    reset(&service, ATTACKER);
    assert!(!ask(&service, "edge", &[("user", ATTACKER)]), "only the limit counts again");

    let page = browser.evaluate(EVERYTHING);
    assert!(!page.as_str().expect("a text").contains(ATTACKER));
    let sent = browser.events("Network.requestWillBeSent");
    let asks_values =
        |sent: &&&Value| sent["request"]["url"].as_str().is_some_and(|url| url.ends_with("/values"));
    assert_eq!(sent.iter().filter(asks_values).count(), 0);
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
    let log = service.log_with("exception removed through the admin port");
    let set = log.lines().find(|line| line.contains("exception set through the admin port")).expect("a line");
    assert!(set.contains("reason=\"from the console\"") && set.contains("peer=127.0.0.1"), "{set}");
    assert!(log.contains("reason=\"it was a test\"") && !log.contains(ATTACKER), "{log}");
}

#[test]
fn an_exception_does_what_its_preview_says_and_a_refusal_is_told_in_words() {
    let token = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(token.path(), "token").expect("room for a token");
    let service =
        Plan::new(RULES).set("server.admin.operator_token_file", token.path().to_string_lossy()).start();
    for _ in 0..6 {
        ask(&service, "edge", &[("tenant", "acme-corp"), ("path", "/search")]);
    }
    let mut browser = open(&service);
    click(&mut browser, "#key-table [data-do=except]");
    // Every client sends the path.
    let entries =
        "[...document.querySelector('dialog form').elements.entry.selectedOptions].map((e) => e.text)";
    let entry = browser.evaluate(entries);
    assert!(entry[0].as_str().is_some_and(|entry| entry.starts_with("tenant=ac…#")), "{entry}");
    click(&mut browser, "dialog [name=go]");
    browser
        .wait_until(&has_text("dialog [role=alert]", "this action needs the header Authorization: Bearer"));
    submit(&mut browser, &[("effect", "limit"), ("limit", "1.5"), ("operator", "token")]);
    assert_eq!(browser.evaluate("document.querySelector('dialog form').checkValidity()"), false);
    submit(&mut browser, &[("reason", " "), ("limit", "7")]);
    browser.wait_until(&has_text("dialog [role=alert]", "reason"));
    submit(
        &mut browser,
        &[("effect", "multiplier"), ("multiplier", "3"), ("reason", "INC-42"), ("until", "")],
    );
    browser.wait_until(&has_text("#key-table .badge", "limit changed (live row "));
    let max_cost = || {
        let entries = json!([{"key": "tenant", "value": "acme-corp"}, {"key": "path", "value": "/search"}]);
        let answer = post(
            &service,
            "/counters/show",
            &json!({"domain": "edge", "descriptors": [{"entries": entries}]}),
            "",
        );
        let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
        answer["counters"][0]["limit"].clone()
    };
    assert_eq!(max_cost(), 15, "as the preview said");
    browser.wait_until(&has_text("#live-table tbody tr", "× 3permanentINC-42"));

    click(&mut browser, "#key-table [data-do=except]");
    browser.wait_until("document.querySelector('dialog').open");
    submit(&mut browser, &[("effect", "limit"), ("limit", "7"), ("until", "4h"), ("operator", "token")]);
    browser.wait_until(&has_text("#key-table .badge", "limit changed until "));
    assert_eq!(max_cost(), 7, "it replaces the multiplier");
    click(&mut browser, "#key-table [data-do=except]");
    submit(&mut browser, &[("effect", "exempt"), ("operator", "token")]);
    browser.wait_until(&has_text("#key-table .badge.exempt", "exempt until "));
    for _ in 0..9 {
        assert!(!ask(&service, "edge", &[("tenant", "acme-corp"), ("path", "/search")]));
    }
}
