//! `count: true`: unlimited limits and tiers deny nothing, and have usage.

use serde_json::{Value, json};

use super::usage::{body, descriptor, send, usage};
use crate::ledger::service::{plan, stop, usage as print_usage};
use crate::support::process::{Plan, Ratelimitd};

const RULES: &str = "
domain: shop
descriptors:
  - key: customer
    descriptors:
      - key: plan
        tier: true
        rate_limit: { name: yearly, unit: year, requests_per_unit: 5, algorithm: fixed_window, calendar: UTC,
                      ledger: true, count: true, tiers: { big: unlimited } }
  - key: partner
    rate_limit: { name: partners, unlimited: true, count: true, unit: year, settle: true }
  - key: quota
    quota_mode: true
    rate_limit: { name: quota, unit: year, requests_per_unit: 1, algorithm: fixed_window }
  - key: open
    quota_mode: true
    rate_limit: { name: open, unlimited: true, count: true, unit: year, algorithm: fixed_window }
  - { key: free, rate_limit: { name: free, unlimited: true } }
";

fn customer(name: &str, plan: &str) -> Value {
    json!({"entries": [{"key": "customer", "value": name}, {"key": "plan", "value": plan}]})
}

/// The answer to a call of `/json`.
fn decide(service: &Ratelimitd, descriptors: &[Value]) -> Value {
    let answer = send(service.http_port(), "/json", &body(descriptors), None);
    assert!([200, 429].contains(&answer.status), "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

fn with_hits(mut descriptor: Value, hits: u64) -> Value {
    descriptor["hitsAddend"] = hits.into();
    descriptor
}

/// What is used of the first limit, and its number.
fn used(service: &Ratelimitd, descriptor: Value) -> (Value, Value, Value) {
    let limit = usage(service, &[descriptor])[0][0].clone();
    (limit["used"].clone(), limit["limit"].clone(), limit["unlimited"].clone())
}

/// Decides, and reads usage, on any store.
pub(crate) fn check_counts(service: &Ratelimitd) {
    let free = json!({"code": "OK", "limitRemaining": u32::MAX});
    let answer = decide(service, &[with_hits(customer("a", "big"), 7), descriptor("free", "x")]);
    assert_eq!(answer["statuses"], json!([free, free]), "both are unlimited");
    assert!(answer.get("responseHeadersToAdd").is_none(), "{answer}");
    assert_eq!(used(service, customer("a", "big")), (json!(7), Value::Null, json!(true)));
    assert_eq!(used(service, descriptor("free", "x")), (Value::Null, Value::Null, json!(true)));
    // Without the tier, the same counter has a limit.
    let answer = decide(service, &[customer("a", "none")]);
    assert_eq!(answer["overallCode"], "OVER_LIMIT");
    let last = usage(service, &[customer("a", "none")])[0][0].clone();
    assert_eq!([&last["used"], &last["limit"], &last["remaining"]], [&json!(7), &json!(5), &json!(0)]);
    // More than can be counted is admitted all the same.
    let answer = decide(service, &[with_hits(customer("a", "big"), u64::MAX)]);
    assert_eq!(answer["statuses"], json!([free]));
    assert_eq!(used(service, customer("a", "big")).0, 7);

    // A receipt corrects what is used.
    let answer = decide(service, &[with_hits(descriptor("partner", "p"), 100)]);
    let receipt = answer["dynamicMetadata"]["receipt"].as_str().expect("a receipt").to_owned();
    assert_eq!(answer["statuses"], json!([free]));
    let settle = json!({"entries": [{"key": "partner", "value": "p"}, {"key": "ratelimitd_receipt", "value": receipt}]});
    assert_eq!(decide(service, &[with_hits(settle, 30)])["statuses"], json!([free]));
    assert_eq!(used(service, descriptor("partner", "p")).0, 30);

    // As without a counter: it does not keep another quota from denying.
    let both = [descriptor("quota", "q"), descriptor("open", "q")];
    let codes = [decide(service, &both), decide(service, &both)].map(|answer| answer["overallCode"].clone());
    assert_eq!(codes, ["OK", "OVER_LIMIT"]);
    assert_eq!(used(service, descriptor("open", "q")).0, 1, "a denied request is not counted");
}

#[test]
fn what_is_unlimited_is_counted_and_denies_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let service = plan(RULES, directory.path()).set("response.headers", "ietf").start();
    check_counts(&service);
    let admin = format!("127.0.0.1:{}", service.admin_port());
    let body = body(&[customer("a", "big")]);
    let answer = send(service.admin_port(), "/explain", &body, None);
    let explained = "unlimited: counted, always admitted";
    assert!(answer.body.contains(explained) && answer.body.contains("store key"), "{}", answer.body);
    let (code, text, _) = print_usage(&["now", "--admin", &admin, "--domain", "shop", "customer=a,plan=big"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.lines().any(|line| line.split_whitespace().take(4).eq(["yearly", "7", "-", "unlimited"])),
        "{text}"
    );
    stop(service);
    let path = directory.path().to_str().expect("UTF-8");
    let (code, text, errors) = print_usage(&["--by", "customer", "--json", path]);
    let row: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}{errors}"));
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!([&row["customer"], &row["units"], &row["used"]], [&json!("a"), &json!(7), &json!(7)], "{row}");
}

pub(crate) fn redis_plan(url: &str) -> Plan {
    Plan::new(RULES).redis(url).set("response.headers", "ietf")
}
