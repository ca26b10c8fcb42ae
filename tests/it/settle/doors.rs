//! A settle through `/json` with default settings, and what rule files, explain and the pages say about `settle`.

use ::rules::{AppliedUpgrades, describe, rlconfig};
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::rules::{load_text, request, rules};
use crate::service::http::post;
use crate::support::http;
use crate::support::process::Ratelimitd;

const RULES: &str = "
domain: web
descriptors:
  - { key: tenant, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window, settle: true } }
  - { key: plain, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window } }
";

/// Sends one descriptor. Returns the status, what remains, and the metadata.
async fn send(service: &Ratelimitd, entries: &[(&str, &str)], hits: u64) -> (StatusCode, Value, Value) {
    let entries: Vec<_> = entries.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    let request = json!({"domain": "web", "descriptors": [{"entries": entries, "hitsAddend": hits}]});
    let (status, _, body) = post(service, request.to_string()).await;
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    (status, answer["statuses"][0]["limitRemaining"].clone(), answer["dynamicMetadata"].clone())
}

#[tokio::test]
async fn a_caller_in_json_settles_with_the_receipt_of_the_answer() {
    let service = Ratelimitd::start(RULES);
    let (status, left, metadata) = send(&service, &[("tenant", "a")], 400).await;
    assert_eq!((status, left), (StatusCode::OK, json!(600)));
    let receipt = metadata["receipt"].as_str().expect("a receipt");
    assert_eq!(metadata, json!({"receipt": receipt}), "and nothing else");
    let settled = send(&service, &[("tenant", "a"), ("ratelimitd_receipt", receipt)], 150).await;
    assert_eq!(settled, (StatusCode::OK, json!(850), Value::Null));
    let unreadable = send(&service, &[("tenant", "a"), ("ratelimitd_receipt", "?")], 50).await;
    assert_eq!(unreadable, (StatusCode::OK, json!(800), Value::Null));
    assert_eq!(
        send(&service, &[("tenant", "a")], 801).await,
        (StatusCode::TOO_MANY_REQUESTS, json!(800), Value::Null)
    );
    assert_eq!(send(&service, &[("plain", "a")], 1).await, (StatusCode::OK, json!(999), Value::Null));
    let (status, _, other) = send(&service, &[("tenant", "b")], 10).await;
    assert!(status == StatusCode::OK && other["receipt"].is_string(), "{other}");
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let given = "ratelimitd_receipts_total{domain=\"web\",rule=\"web.tenant\"} 2\n";
    assert!(metrics.contains(given), "of two receipts, one came back: {metrics}");
}

#[test]
fn explain_and_rlconfig_say_that_a_limit_settles() {
    let rules = rules(RULES);
    let tenant = "web.tenant: unit=YEAR requests_per_unit=1000, shadow_mode: false, quota_mode: false, charging: prepaid";
    let lines = rlconfig(&rules);
    assert!(lines.contains(&format!("{tenant}, settle: true\n")), "{lines}");
    assert_eq!(lines.matches("settle").count(), 1, "{lines}");
    let explained = |asked: &str| {
        let request = request("web", &[asked]);
        describe(&rules, &AppliedUpgrades::default(), &request, 0).expect("a plan").text
    };
    let line = "    settle            an answer has a receipt; ";
    assert!(explained("tenant=a").contains(line), "{}", explained("tenant=a"));
    assert!(!explained("plain=a").contains("settle"));
}

#[test]
fn a_rule_cannot_have_the_key_of_receipts() {
    let text = "domain: d\ndescriptors:\n  - key: ratelimitd_receipt\n    rate_limit: { unit: day, requests_per_unit: 1 }\n";
    let problems = load_text(text).expect_err("a taken key").to_string();
    assert!(problems.contains("rules.yaml:3: ") && problems.contains("ratelimitd_receipt"), "{problems}");
}
