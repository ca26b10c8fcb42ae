//! Actions on a row: a look, a reset, and a line for an exceptions file.

use serde_json::json;

use super::super::{RULES, ask, post};
use super::{click, has_text, open, submit};
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

fn remaining(service: &Ratelimitd, user: &str) -> u64 {
    let body = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": user}]}]});
    let answer = post(service, "/counters/show", &body, "").body;
    let answer: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
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
fn the_line_for_an_exceptions_file_does_what_its_preview_says() {
    let token = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(token.path(), "token").expect("room for a token");
    let exceptions = tempfile::TempDir::new().expect("a temporary directory");
    let file = exceptions.path().join("console.yaml");
    std::fs::write(&file, "[]").expect("a file");
    let service = Plan::new(RULES)
        .set("exceptions.path", exceptions.path().to_string_lossy())
        .set("server.admin.operator_token_file", token.path().to_string_lossy())
        .start();
    // A value that YAML must not change.
    let user = "ann \"x\": #'\u{202e}\\ é";
    for _ in 0..3 {
        ask(&service, "edge", &[("user", user)]);
    }
    let mut browser = open(&service);
    click(&mut browser, "#key-table [data-do=except]");
    browser.wait_until(&has_text("dialog p", "It affects 1 key on this page"));
    assert_eq!(browser.evaluate("document.querySelector('dialog pre').hidden"), true, "the value is masked");
    click(&mut browser, "dialog [data-do=value]");
    submit(&mut browser, &[("reason", "INC-42"), ("operator", "token")]);
    browser.wait_until(&has_text("dialog pre", "domain: \"edge\""));
    assert_eq!(browser.texts("dialog [name=entry] option"), [format!("user={user}")], "as in the field");
    assert!(browser.texts("dialog .note")[0].contains(&*exceptions.path().to_string_lossy()));
    let line = |browser: &mut crate::support::chromium::Chromium, fields: &[(&str, &str)]| {
        // The page copies the line; a browser without a window has no clipboard.
        browser.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }");
        submit(browser, fields);
        let copied = browser.wait_until("window.copied");
        browser.evaluate("window.copied = ''");
        copied.as_str().expect("a text").to_owned()
    };
    let admits = line(&mut browser, &[("effect", "exempt"), ("reason", "INC-42"), ("by", "on call")]);
    assert!(admits.contains("path: \"user\", limit_name: \"per-user\", exempt: true"), "{admits}");
    assert!(admits.contains("reason: \"INC-42\", by: \"on call\" }"), "{admits}");
    std::fs::write(&file, format!("{admits}\n")).expect("a file");
    wait::expect("the row is in force", || !ask(&service, "edge", &[("user", user)]));
    assert!(!ask(&service, "edge", &[("user", user)]), "and nothing is counted");

    click(&mut browser, "#key-table [data-do=except]");
    let doubled = line(&mut browser, &[("effect", "multiplier"), ("number", "3"), ("minutes", "")]);
    assert!(doubled.contains("multiplier: 3 }"), "{doubled}");
    std::fs::write(&file, format!("{doubled}\n")).expect("a file");
    wait::expect("the row is in force", || {
        let body = json!({"domain": "edge", "descriptors": [{"entries": [{"key": "user", "value": user}]}]});
        post(&service, "/counters/show", &body, "").body.contains("\"max_cost\": 3")
    });
    click(&mut browser, "#key-table [data-do=except]");
    let blocks = line(&mut browser, &[("minutes", "120")]);
    assert!(!blocks.contains("path:") && blocks.contains("block: true, until: \""), "{blocks}");
    std::fs::write(&file, format!("{blocks}\n")).expect("a file");
    wait::expect("the row is in force", || {
        let page = http::get(service.admin_port(), "/exceptions", &[]).expect("an answer").body;
        page.contains("\"block\": 1")
    });
    assert!(ask(&service, "edge", &[("user", user)]));
}

#[test]
fn without_files_of_exceptions_the_page_says_what_to_set() {
    let service = Ratelimitd::start(RULES);
    ask(&service, "edge", &[("user", "ann")]);
    ask(&service, "edge", &[("user", "ann")]);
    let mut browser = open(&service);
    browser.wait_until("document.querySelector('#key-table [data-do=reset]')");
    assert_eq!(browser.evaluate("document.querySelector('[data-do=except]')"), json!(null));
    assert!(browser.texts("#key-note")[0].contains("set exceptions.path"));
    // The settings name no token.
    click(&mut browser, "#reveal");
    browser.wait_until(&has_text("dialog", "ratelimitctl token"));
    assert_eq!(browser.texts("dialog button"), ["Close", "Show"]);
}
