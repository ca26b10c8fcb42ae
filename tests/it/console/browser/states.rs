//! The states of the page: paused, hidden, no answer, another process, a stop, rules that cannot be used.

use serde_json::json;

use super::super::{RULES, ask};
use super::{has_text, open};
use crate::support::process::{Plan, Ratelimitd};

/// Waits until the time of the last sample has changed, and returns it.
fn next_second(browser: &mut crate::support::chromium::Chromium) -> String {
    let before = browser.texts("#about").remove(0);
    browser.wait_until(&format!("!({})", has_text("#about", &before)));
    browser.texts("#about").remove(0)
}

#[test]
fn a_paused_page_stands_still_and_goes_on() {
    let service = Ratelimitd::start(RULES);
    let mut browser = open(&service);
    next_second(&mut browser);
    browser.press("p", 80);
    browser.wait_until(&has_text("#live", "paused"));
    let about = browser.texts("#about");
    // Samples go on to arrive.
    browser.evaluate(
        "window.samples = 0;
        new MutationObserver(() => { window.changes = (window.changes ?? 0) + 1; })
            .observe(document.querySelector('main'), { subtree: true, childList: true, attributes: true });
        (async () => {
            const reader = (await fetch('/console/events')).body.getReader();
            while (!(await reader.read()).done) window.samples += 1;
        })(); 0",
    );
    browser.wait_until("window.samples > 3");
    assert_eq!(browser.texts("#about"), about);
    assert_eq!(browser.evaluate("window.changes"), json!(null), "nothing is drawn");
    ask(&service, "edge", &[("user", "ann")]);
    browser.press("p", 80);
    browser.wait_until(&has_text("#live", "live"));
    browser.wait_until(&has_text("#tiles > div:nth-child(1)", "1 in 15 min"));
}

#[test]
fn a_hidden_tab_closes_its_stream() {
    let service = Ratelimitd::start(RULES);
    let mut browser = open(&service);
    let hide = |is_hidden: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{ value: {is_hidden}, configurable: true }});
            document.dispatchEvent(new Event('visibilitychange')); 0"
        )
    };
    browser.evaluate(&hide(true));
    browser.wait_until(&has_text("#live", "hidden"));
    let streams = |browser: &crate::support::chromium::Chromium| {
        let sent = browser.events("Network.requestWillBeSent").into_iter();
        let urls = sent.map(|sent| sent["request"]["url"].as_str().expect("an address").to_owned());
        urls.filter(|url| url.ends_with("/events")).count()
    };
    assert_eq!(streams(&browser), 1);
    browser.evaluate(&hide(false));
    browser.wait_until(&has_text("#live", "live"));
    assert_eq!(streams(&browser), 2);
}

#[test]
fn a_lost_process_is_tried_again_and_another_one_is_told() {
    let mut service = Ratelimitd::start(RULES);
    let mut browser = open(&service);
    service.kill();
    browser.wait_until(&has_text("#live", "no answer: reconnecting in 1 s"));
    browser.wait_until(&has_text("#live", "no answer: reconnecting in 2 s"));
    browser.wait_until(&has_text("#live", "no answer: reconnecting in 4 s"));
    assert_eq!(browser.evaluate("document.body.classList.contains('stale')"), true);
    assert_eq!(browser.evaluate("document.querySelector('#ready').checkVisibility()"), false);
    service.restart();
    browser.wait_until(&has_text("#live", "live"));
    browser.wait_until(&has_text("#notices .bad", "Connected to another process."));
    assert_eq!(browser.evaluate("document.body.classList.contains('stale')"), false);
}

#[test]
fn a_process_that_drains_and_stops_says_so() {
    let service = Plan::new(RULES).set("server.drain", "3s").start();
    let mut browser = open(&service);
    browser.wait_until(&has_text("#ready", "ready"));
    service.terminate();
    browser.wait_until(&has_text("#ready.wait", "not ready: draining"));
    browser.wait_until(&has_text("#notices .warn", "This process is draining."));
    browser.wait_until(&has_text("#live.bad", "the process has stopped"));
}

#[test]
fn rules_that_cannot_be_used_are_told_with_file_and_line() {
    let service = Ratelimitd::start(RULES);
    let mut browser = open(&service);
    let file = service.rules().join("rules.yaml");
    std::fs::write(&file, RULES.replace("unit: day, requests_per_unit: 5", "unit: dya")).expect("a file");
    browser.wait_until(&has_text("#notices .warn", "Newer rules rejected at"));
    browser.wait_until(&has_text("#notices .warn", "rules.yaml:6"));
    browser.wait_until(&has_text("#in-force .wait", "newer rules rejected"));
    browser.wait_until(&has_text("#chart text.bad", "rules rejected"));
    std::fs::write(&file, RULES).expect("a file");
    browser.wait_until(&has_text("#in-force", "up to date"));
    assert_eq!(browser.texts("#notices li"), [""; 0]);
}

#[test]
fn the_seventeenth_page_is_live_while_sixteen_streams_are_not_read() {
    let service = Ratelimitd::start(RULES);
    let _streams: Vec<_> = (0..16).map(|_| stream(&service)).collect();
    let mut late = super::open_page(&service);
    late.wait_until(super::HAS_STATE);
    assert_eq!(late.evaluate("document.querySelector('#live').className"), "dot ");
}

/// An open stream of events.
fn stream(service: &Ratelimitd) -> std::net::TcpStream {
    use std::io::{Read as _, Write as _};
    let mut stream = crate::support::http::connect(service.admin_port()).expect("a connection");
    stream.write_all(b"GET /console/events HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("open");
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("an answer");
    stream
}

#[test]
fn a_service_without_rules_says_so() {
    let service = Plan::new("domain: edge\ndescriptors: []\n").start();
    let mut browser = open(&service);
    browser.wait_until(&has_text("#rule-note", "There are no rules."));
    browser.wait_until(&has_text("#key-table", "No key was over a limit."));
    browser.wait_until(&has_text("#tabs [aria-pressed=true]", "Denying 0"));
}
