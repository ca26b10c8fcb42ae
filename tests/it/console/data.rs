//! The numbers: they are those of the metrics, add up, and are never above the truth.

use serde_json::json;

use super::{RULES, ask, state, state_with, sum};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

/// A counter of `/metrics`.
fn counter(service: &Ratelimitd, series: &str) -> u64 {
    let page = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{series} is not in\n{page}")).parse().expect("a number")
}

#[test]
fn the_classes_of_requests_add_up_and_are_those_of_the_metrics() {
    let service = Ratelimitd::start(RULES);
    let denied =
        (0..40).filter(|_| ask(&service, "edge", &[("tenant", "acme-corp"), ("path", "/search")])).count();
    assert_eq!(denied, 35);
    for _ in 0..3 {
        assert!(!ask(&service, "edge", &[("tenant_id", "acme")]), "no rule has the key");
        assert!(!ask(&service, "egde", &[("tenant", "acme")]), "no rule has the domain");
        assert!(!ask(&service, "", &[("tenant", "acme")]), "not valid");
    }
    let state = state_with(&service, "49 requests", |state| sum(state, "requests") == 49);
    let sums = ["denied", "failed", "policy", "shadow"].map(|series| sum(&state, series));
    assert_eq!(sums, [35, 3, 0, 0], "{state}");
    let results = ["ok", "ok_by_policy", "denied", "no_decision"]
        .map(|result| counter(&service, &format!("ratelimitd_requests_total{{result=\"{result}\"}}")));
    assert_eq!(results, [11, 0, 35, 3]);
    assert_eq!(counter(&service, "ratelimitd_unlimited_requests_total"), 3);

    let rule = &state["rules"]["list"][0];
    assert_eq!((&rule["rule"], &rule["kind"]), (&json!("edge.tenant.path_/search"), &json!("enforced")));
    assert_eq!((rule["asked_15m"].as_u64(), rule["denied_15m"].as_u64()), (Some(40), Some(35)));
    assert_eq!(rule["limit"], "5 per day");
    assert_eq!((&state["rules"]["total"], &state["rules"]["idle"]), (&json!(2), &json!(1)));
    let key = &state["keys"][0];
    assert_eq!((key["denied_15m"].as_u64(), &key["rule"]), (Some(35), &rule["id"]));
    // The value of the tenant is masked, the value of the rule file is not.
    assert_eq!(key["entries"][1], json!(["path", "/search"]));
    let tenant = key["entries"][0][1].as_str().expect("a text");
    assert!(tenant.starts_with("ac…#") && tenant.chars().count() == 8, "{tenant}");
    assert_eq!(state["unlimited"]["names"][0][0], "edge: tenant_id");
    assert_eq!(state["unlimited"]["domains"], json!(["egde"]));
    let notices = state["notices"].to_string();
    assert!(notices.contains("edge: no rule has tenant_id; the first level has: tenant, user."), "{notices}");
    let undecided = notices.contains("3 requests got no decision in the last minute.");
    assert!(undecided && notices.contains("Invalid requests."), "{notices}");
}

#[test]
fn every_rule_is_listed_if_it_is_asked_for() {
    let service = Ratelimitd::start(RULES);
    assert!(!ask(&service, "edge", &[("user", "ann")]));
    state_with(&service, "a request", |state| sum(state, "requests") == 1);
    let all = http::get(service.admin_port(), "/console/state?rules=all", &[]).expect("an answer").body;
    let all: serde_json::Value = serde_json::from_str(&all).expect("JSON");
    let names: Vec<_> =
        all["rules"]["list"].as_array().expect("a list").iter().map(|rule| &rule["rule"]).collect();
    assert_eq!(names, ["per-user", "edge.tenant.path_/search"]);
}

#[test]
fn a_reload_is_a_mark_and_rejected_rules_are_a_notice() {
    let service = Ratelimitd::start(RULES);
    let file = service.rules().join("rules.yaml");
    std::fs::write(&file, RULES.replace("requests_per_unit: 5", "requests_per_unit: 6"))
        .expect("a rule file");
    let reloaded = state_with(&service, "a mark", |state| !state["marks"][0].is_null());
    assert_eq!(reloaded["marks"][0]["text"], "new rules");
    assert_eq!(reloaded["marks"][0]["at"], reloaded["rules"]["loaded_at"]);
    assert!(wait::unix_seconds() - reloaded["marks"][0]["at"].as_u64().expect("a time") < 30);

    std::fs::write(&file, RULES.replace("requests_per_unit: 5", "requests_per_unit: 6OO"))
        .expect("a rule file");
    let rejected = state_with(&service, "rejected rules", |state| !state["rules"]["rejected"].is_null());
    let notice = &rejected["notices"][0];
    let title = notice["title"].as_str().expect("a text");
    assert!(title.starts_with("▲ Newer rules rejected at "), "{notice}");
    assert!(notice["text"].as_str().is_some_and(|text| text.contains("rules.yaml:6")), "{notice}");
    assert!(notice["text"].as_str().is_some_and(|text| text.contains("The rules of ")), "{notice}");
    assert_eq!(rejected["marks"][1]["text"], "rules rejected");
}

#[test]
fn no_value_that_is_not_in_a_rule_file_is_shown() {
    let secret = "
domain: api
descriptors: [{ key: token, secret: true, rate_limit: { unit: day, requests_per_unit: 1 } }]
";
    let service = Plan::new(RULES).rule_file("api.yaml", secret).set("secrets.key", "k".repeat(32)).start();
    for _ in 0..3 {
        ask(&service, "edge", &[("user", "ann@example.org")]);
        ask(&service, "api", &[("token", "t0p-s3cret-token")]);
    }
    state_with(&service, "two keys", |state| state["keys"].as_array().is_some_and(|keys| keys.len() == 2));
    let shown = state(&service);
    let text = shown.to_string();
    assert!(!text.contains("ann@example.org") && !text.contains("t0p-s3cret-token"), "{text}");
    let secret = shown["keys"].as_array().expect("a list").iter().find(|key| key["secret"] == true);
    let value = secret.expect("a secret key")["entries"][0][1].as_str().expect("a text");
    assert!(value.starts_with("%k") && value.ends_with('…'), "{value}");
    assert!(!service.log().contains("ann@example.org"), "{}", service.log());
}

#[test]
fn hostile_values_are_texts() {
    let service = Ratelimitd::start(RULES);
    let long = "x".repeat(5_000);
    let values = ["</script><b>", "\"'\\", "\u{202e}rtl\u{0}\u{1b}[31m", "…#0000", "|=%{}#", &long];
    for value in values {
        for _ in 0..2 {
            ask(&service, "edge", &[("user", value)]);
        }
    }
    let state =
        state_with(&service, "all keys", |state| state["keys"].as_array().is_some_and(|k| k.len() == 6));
    for key in state["keys"].as_array().expect("a list") {
        let shown = key["entries"][0][1].as_str().expect("a text");
        assert!(shown.chars().count() <= 11, "{shown}");
        assert_eq!(key["denied_15m"], 1, "{key}");
    }
}
