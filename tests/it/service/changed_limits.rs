//! Limits that change while the service runs keep what was used, and the service says so; limits above 32 bits.

use serde_json::{Value, json};

use crate::cli::counters::counters_of;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

/// Takes units of `tenant=a`. Returns the answer with the headers.
fn take(service: &Ratelimitd, units: u64) -> Value {
    let entries = json!([{"key": "tenant", "value": "a"}]);
    let body = json!({"domain": "d", "descriptors": [{"entries": entries, "hitsAddend": units.to_string()}]});
    let mut stream = http::connect(service.http_port()).expect("a connection");
    let head = ["POST /json HTTP/1.1", "host: localhost", "content-type: application/json"];
    let response = http::exchange(&mut stream, &head, &body.to_string()).expect("an answer");
    serde_json::from_str(&response.body).expect("JSON")
}

fn page(service: &Ratelimitd) -> Value {
    let response = http::get(service.admin_port(), "/rules", &[]).expect("an answer");
    serde_json::from_str(&response.body).expect("JSON")
}

/// The remaining units of the limits of `tenant=a`.
fn remaining(service: &Ratelimitd) -> Vec<Value> {
    let (code, answer, error) = counters_of(service, "d", &["show", "--json", "tenant=a"]);
    assert_eq!(code, Some(0), "{error}");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let counters = answer["counters"].as_array().expect("a list");
    counters.iter().map(|counter| counter["remaining"].clone()).collect()
}

/// A limit per year of each kind that keeps its counters, and one that does not.
pub(crate) fn rules(number: u64) -> String {
    let limit = |name: &str, more: &str| {
        format!("      - {{ name: {name}, unit: year, requests_per_unit: {number}, {more} }}\n")
    };
    let limits = [
        limit("window", "algorithm: fixed_window"),
        limit("bucket", "algorithm: gcra"),
        limit("tokens", "algorithm: token_bucket, refill: interval"),
    ];
    format!("domain: d\ndescriptors:\n  - key: tenant\n    rate_limits:\n{}", limits.concat())
}

/// Checks a service with [`rules`] of 1,000.
pub(crate) fn check_change(service: &Ratelimitd) {
    assert_eq!(page(service)["changed_limits"], json!({"limits": 0, "first": []}));
    take(service, 800);
    assert_eq!(remaining(service), [200, 200, 200]);
    std::fs::write(service.rules().join("rules.yaml"), rules(2_000)).expect("a rule file");
    wait::expect("the change", || page(service)["generation"] == 2);
    // 800 units, eight tenths, and nothing.
    assert_eq!(remaining(service), [1_200, 400, 2_000]);
    let change = |limit: &str, algorithm: &str, burst: [&str; 2], counters: &str| {
        let numbers = |number: u64, burst| format!("{number} per year, {algorithm}{burst}");
        json!({
            "limit": limit,
            "rule": "d.tenant",
            "before": numbers(1_000, burst[0]),
            "after": numbers(2_000, burst[1]),
            "counters": counters,
        })
    };
    let bursts = [", burst 1000", ", burst 2000"];
    let first = [
        change("window", "fixed_window", ["", ""], "keep the used units"),
        change("bucket", "gcra", bursts, "keep the used share"),
        change("tokens", "token_bucket", bursts, "start at zero"),
    ];
    assert_eq!(page(service)["changed_limits"], json!({"limits": 3, "first": first}));
    let log = service.log_with("start at zero");
    for counters in ["keep the used units", "keep the used share", "start at zero"] {
        assert!(log.contains(&format!("counters={counters}")), "{log}");
    }
}

#[test]
fn a_changed_limit_keeps_what_was_used_and_the_service_says_so() {
    check_change(&Plan::new(&rules(1_000)).start());
}

/// The protocol has 32 bits for a limit and for what remains of it.
#[test]
fn limits_above_32_bits_are_exact_where_there_is_room_for_them() {
    let rules = "
domain: d
descriptors:
  - key: tenant
    rate_limits:
      - { name: money, unit: month, requests_per_unit: 5000000000, algorithm: fixed_window }
      - { name: tokens, unit: month, requests_per_unit: 70368744177664, algorithm: sliding_window }
";
    let service = Plan::new(rules).set("response.headers", "envoy_ratelimit").start();
    let answer = take(&service, 4_000_000_000);
    assert_eq!(answer["statuses"][0]["limitRemaining"], 1_000_000_000);
    assert_eq!(answer["statuses"][0]["currentLimit"]["requestsPerUnit"], u32::MAX);
    let headers: Vec<_> = answer["responseHeadersToAdd"].as_array().expect("headers").iter().collect();
    let header =
        |name: &str| headers.iter().find(|header| header["key"] == name).expect(name)["value"].clone();
    assert_eq!(
        (header("RateLimit-Limit"), header("RateLimit-Remaining")),
        (json!("5000000000"), json!("1000000000"))
    );
    assert_eq!(remaining(&service), [1_000_000_000, 70_364_744_177_664_u64]);
    let over = take(&service, 1_000_000_001);
    assert_eq!(over["overallCode"], "OVER_LIMIT");

    let ietf =
        Plan::new(&rules.replace("5000000000", "4503599627370496")).set("response.headers", "ietf").start();
    let answer = take(&ietf, 4_000_000_000);
    assert_eq!(answer["statuses"][0]["limitRemaining"], u32::MAX);
    let text = answer["responseHeadersToAdd"].to_string();
    // A structured field has integers of at most 15 digits.
    assert!(
        text.contains(r#"\"money\";q=999999999999999;w=2592000, \"tokens\";q=70368744177664;w=2592000"#),
        "{text}"
    );
    assert!(text.contains(r#"\"money\";r=999999999999999;t="#), "{text}");
    assert_eq!(remaining(&ietf), [4_503_595_627_370_496_u64, 70_364_744_177_664]);
}
