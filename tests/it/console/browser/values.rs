//! What a page shows of values: they are masked until somebody with a token asks for them, and never markup.

use serde_json::{Value, json};

use super::super::{RULES, ask};
use super::{click, has_text, open, submit};
use crate::support::process::{Plan, Ratelimitd};

const HOSTILE: &str = "'\"><img src=x onerror=\"hit=1\"></script><script>hit=1</script>";
/// Longer texts are hashes before a key is written.
const SHORT: &str = "</code><b onclick=hit=1>";

#[test]
fn texts_of_requests_and_rules_are_shown_as_they_are() {
    let (name, key) = (json!(HOSTILE), json!(SHORT));
    let rules = format!(
        "domain: {name}\ndescriptors:\n  - key: {key}\n    value: {key}\n    rate_limit: \
         {{ name: {name}, unit: day, requests_per_unit: 1 }}\n"
    );
    let service = Ratelimitd::start(&rules);
    let long = "x".repeat(5_000);
    for value in [SHORT, HOSTILE, "\u{202e}rtl\u{0}\u{1b}[31m", "\"'\\", &long] {
        ask(&service, HOSTILE, &[(SHORT, value)]);
        ask(&service, HOSTILE, &[(SHORT, value)]);
        ask(&service, value, &[(value, value)]);
    }
    let mut browser = open(&service);
    browser.wait_until(&has_text("#key-table code", &format!("{SHORT}=")));
    browser.wait_until(&has_text("#rule-table code", HOSTILE));
    browser.wait_until(&has_text("#unlimited", "<script>"));
    assert_eq!(browser.evaluate("typeof window.hit"), "undefined");
    let elements = "[document.images.length, document.querySelectorAll('script').length]";
    assert_eq!(browser.evaluate(elements), json!([0, 1]));
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth > innerWidth"), false);
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

#[test]
fn values_are_shown_with_a_token_and_secret_ones_never() {
    let operator = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(operator.path(), "operator-token").expect("room for a token");
    let secret = "
domain: api
descriptors:
  - { key: token, secret: true, rate_limit: { unit: day, requests_per_unit: 1 } }
";
    let service = Plan::new(RULES)
        .rule_file("api.yaml", secret)
        .set("secrets.key", "k".repeat(32))
        .set("server.admin.operator_token_file", operator.path().to_string_lossy())
        .start();
    for _ in 0..2 {
        ask(&service, "edge", &[("user", "ann@example.org")]);
        ask(&service, "api", &[("token", "t0p-s3cret-token")]);
    }
    let mut browser = open(&service);
    browser.wait_until("document.querySelectorAll('#key-table tbody code').length === 2");
    let everything = "document.documentElement.outerHTML + document.documentElement.innerText";
    let has = |browser: &mut _, text: &str| {
        let page: &mut crate::support::chromium::Chromium = browser;
        page.evaluate(everything).as_str().expect("a text").contains(text)
    };
    assert!(!has(&mut browser, "ann@example.org") && !has(&mut browser, "t0p-s3cret"));

    click(&mut browser, "#reveal");
    submit(&mut browser, &[("reason", "INC-42"), ("operator", "a guess")]);
    browser.wait_until(&has_text("dialog [role=alert]", "wrong token"));
    submit(&mut browser, &[("operator", "operator-token")]);
    browser.wait_until(&has_text("#key-table tbody code", "user=ann@example.org"));
    assert!(!has(&mut browser, "t0p-s3cret") && has(&mut browser, "token=%k"));
    assert!(browser.texts("#key-note")[0].starts_with("Values are shown in this tab only"));
    assert!(!has(&mut browser, "operator-token"), "the dialog is closed, and the token is not in the page");
    click(&mut browser, "#reveal");
    browser.wait_until(&has_text("#reveal", "Show values"));
    assert!(browser.texts("#key-note")[0].starts_with("Values are masked"));
    assert!(!has(&mut browser, "ann@example.org"), "hidden again");
    let log = service.log_with("values of denied keys shown through the admin port");
    assert!(log.contains("reason=\"INC-42\"") && !log.contains("ann@example.org"), "{log}");
}

#[test]
fn a_summary_has_no_values() {
    let token = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(token.path(), "token").expect("room for a token");
    let service =
        Plan::new(RULES).set("server.admin.operator_token_file", token.path().to_string_lossy()).start();
    for _ in 0..3 {
        ask(&service, "edge", &[("user", "ann@example.org")]);
    }
    let mut browser = open(&service);
    browser.wait_until("document.querySelector('#key-table tbody code')");
    click(&mut browser, "#reveal");
    submit(&mut browser, &[("reason", "x"), ("operator", "token")]);
    browser.wait_until(&has_text("#key-table tbody code", "user=ann@example.org"));
    // What the page writes to the clipboard; a browser without a window has none.
    browser.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }");
    click(&mut browser, "#copy");
    let copied = browser.wait_until("window.copied");
    let copied = copied.as_str().expect("a text");
    assert!(copied.contains("per-user (1 per day)") && copied.contains("user=an…#"), "{copied}");
    assert!(!copied.contains("ann@example.org"), "{copied}");
}
