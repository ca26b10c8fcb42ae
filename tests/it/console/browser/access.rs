//! Tokens: a page is opened without one, gets its data with one, and keeps it nowhere.

use serde_json::json;
use tempfile::NamedTempFile;

use super::super::{RULES, ask};
use super::{HAS_STATE, click, has_text, open_page, submit};
use crate::support::chromium::Chromium;
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};

/// A service with two tokens, and the files that have them.
fn service_with_tokens() -> (Ratelimitd, [NamedTempFile; 2]) {
    let files = ["viewer-token", "operator-token"].map(|token| {
        let file = NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), token).expect("room for a token");
        file
    });
    let service = Plan::new(RULES)
        .set("server.admin.token_file", files[0].path().to_string_lossy())
        .set("server.admin.operator_token_file", files[1].path().to_string_lossy())
        .start();
    (service, files)
}

fn open_with(service: &Ratelimitd, token: &str) -> Chromium {
    let mut browser = open_page(service);
    browser.wait_until(&has_text("#live", "token needed"));
    submit(&mut browser, &[("token", token)]);
    browser.wait_until(HAS_STATE);
    browser
}

#[test]
fn the_page_forbids_everything_but_itself() {
    let service = Ratelimitd::start(RULES);
    let page = http::get(service.admin_port(), "/console", &[]).expect("an answer");
    assert_eq!(page.status, 200);
    assert!(page.body.len() <= 40_960, "{} bytes", page.body.len());
    let header = |name: &str| page.header(name).unwrap_or_default();
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    assert_eq!(header("cache-control"), "no-store");
    assert_eq!(header("x-content-type-options"), "nosniff");
    assert_eq!(header("referrer-policy"), "no-referrer");
    assert_eq!(header("cross-origin-opener-policy"), "same-origin");
    let policy = header("content-security-policy");
    for directive in [
        "default-src 'none'",
        "style-src 'sha256-",
        "script-src 'sha256-",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.split("; ").any(|found| found.starts_with(directive)), "{directive}: {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let index = http::get(service.admin_port(), "/", &[]).expect("an answer").body;
    assert!(index.contains("\n/console         "), "{index}");
}

#[test]
fn a_token_is_asked_for_and_kept_in_memory_only() {
    let (service, _files) = service_with_tokens();
    let mut browser = open_page(&service);
    browser.wait_until(&has_text("#verdict", "token needed"));
    submit(&mut browser, &[("token", "a guess")]);
    browser.wait_until(&has_text("dialog [role=alert]", "wrong token"));
    assert_eq!(browser.evaluate(HAS_STATE), false);
    // Who closes the dialog can open it again.
    click(&mut browser, "dialog [data-do=close]");
    click(&mut browser, "#live button");
    submit(&mut browser, &[("token", "viewer-token")]);
    browser.wait_until(HAS_STATE);
    browser.wait_until(&has_text("#live", "live"));
    let kept = "JSON.stringify([document.cookie, localStorage.length, sessionStorage.length, location.href])
        + document.documentElement.outerHTML";
    let kept = browser.evaluate(kept);
    let kept = kept.as_str().expect("a text");
    assert!(kept.starts_with("[\"\",0,0,") && !kept.contains("viewer-token"), "{kept}");
    browser.call("Page.reload", json!({}));
    browser.wait_until(&has_text("#live", "token needed"));
}

#[test]
fn a_viewer_looks_and_an_operator_acts() {
    let (service, _files) = service_with_tokens();
    for _ in 0..2 {
        ask(&service, "edge", &[("user", "ann@example.org")]);
    }
    let mut browser = open_with(&service, "viewer-token");
    click(&mut browser, "#key-table [data-do=look]");
    browser.wait_until(&has_text("#key-table .look", "1 of 1 used, a request now is denied"));
    for button in ["#key-table [data-do=reset]", "#reveal"] {
        click(&mut browser, button);
        submit(&mut browser, &[("reason", "INC-42")]);
        browser.wait_until(&has_text("dialog [role=alert]", "this action needs the token of"));
        click(&mut browser, "dialog [data-do=close]");
    }
    click(&mut browser, "#key-table [data-do=reset]");
    submit(&mut browser, &[("reason", "INC-42"), ("operator", "operator-token")]);
    browser.wait_until(&has_text("#key-table .look", "0 of 1 used, a request now is OK"));
    browser.wait_until(&has_text("#chart text", "counter reset"));
    let log = service.log_with("counter reset through the admin port");
    assert!(log.contains("reason=\"INC-42\"") && log.contains("peer=127.0.0.1"), "{log}");
    // The operator's token opens the page, and is then enough to act.
    let mut browser = open_with(&service, "operator-token");
    click(&mut browser, "#reveal");
    submit(&mut browser, &[("reason", "INC-42")]);
    browser.wait_until(&has_text("#key-table tbody code", "user=ann@example.org"));
}

#[test]
fn another_page_may_link_to_the_console_and_not_frame_it() {
    let service = Ratelimitd::start(RULES);
    let url = format!("http://localhost:{}/console", service.admin_port());
    let other = format!("<a href='{url}'>console</a><iframe src='{url}'></iframe>");
    let mut browser = Chromium::open(&other, crate::support::chromium::Colors::Light);
    let refused = browser
        .events("Network.responseReceived")
        .into_iter()
        .any(|answer| answer["response"]["url"] == url.as_str() && answer["response"]["status"] == 403);
    assert!(refused, "the frame is refused by the service");
    browser.evaluate("document.querySelector('a').click()");
    browser.wait_until(&format!("location.href === '{url}' && {HAS_STATE}"));
}
