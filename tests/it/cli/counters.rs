//! The counters of a descriptor by way of the admin port: shown and reset, in memory and in Redis.

use std::process::{Command, Output};

use serde_json::Value;

use crate::support::grpc::{Code, Rls};
use crate::support::process::Ratelimitd;

pub(crate) const RULES: &str = "
domain: shop
descriptors:
  - { key: free, rate_limit: { unlimited: true } }
  - key: user
    rate_limits:
      - { name: per-minute, unit: year, requests_per_unit: 3, algorithm: gcra }
      - { name: per-day, unit: year, requests_per_unit: 5, algorithm: sliding_log }
      - { name: plain, unit: year, requests_per_unit: 4 }
";

pub(crate) fn counters(service: &Ratelimitd, arguments: &[&str]) -> (Option<i32>, String, String) {
    let admin = format!("http://127.0.0.1:{}", service.admin_port());
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_ratelimitd"))
        .arg("counters")
        .args(&arguments[..1])
        .args(["--admin", &admin, "--domain", "shop"])
        .args(&arguments[1..])
        .output()
        .expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// What is left of each limit of user=ann.
fn remaining(service: &Ratelimitd) -> Vec<(String, u64)> {
    let (code, answer, error) = counters(service, &["show", "--json", "user=ann"]);
    assert_eq!(code, Some(0), "{error}");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let each = answer["counters"].as_array().expect("a list");
    each.iter()
        .map(|counter| {
            let name = counter["limit"].as_str().expect("a name").to_owned();
            (name, counter["remaining"].as_u64().expect("a number"))
        })
        .collect()
}

pub(crate) async fn are_shown_and_reset(service: &Ratelimitd, prefix: &str) {
    let mut rls = Rls::connect(service.grpc_port()).await;
    let named = |left: [u64; 3]| -> Vec<(String, u64)> {
        ["per-minute", "per-day", "plain"].map(str::to_owned).into_iter().zip(left).collect()
    };
    assert_eq!(remaining(service), named([3, 5, 4]));
    for expected in [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit] {
        assert_eq!(rls.send_one("shop", &[("user", "ann")]).await.0, expected);
    }
    // Only the plain one counts what is denied.
    assert_eq!(remaining(service), named([0, 2, 0]));
    assert_eq!(remaining(service), named([0, 2, 0]), "to look changes nothing");

    let (code, words, error) = counters(service, &["reset", "user=ann"]);
    assert_eq!(code, Some(0), "{error}");
    let lines: Vec<_> = words.lines().collect();
    assert_eq!(lines.len(), 3, "{words}");
    assert!(lines.iter().all(|line| line.ends_with(": reset") && line.starts_with(prefix)), "{words}");
    assert_eq!(remaining(service), named([3, 5, 4]));
    assert_eq!(rls.send_one("shop", &[("user", "ann")]).await.0, Code::Ok, "nothing remembers the denial");
    let log = service.log();
    for said in ["resetting a counter through the admin port", "counter reset through the admin port"] {
        assert!(log.lines().any(|line| line.contains(said) && line.contains(prefix)), "{log}");
    }
    let (_, words, _) = counters(service, &["reset", "user=bob"]);
    assert!(words.lines().all(|line| line.ends_with(": was not used")), "{words}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_in_memory_are_shown_and_reset() {
    are_shown_and_reset(&Ratelimitd::start(RULES), "{shop|user=ann}#").await;
}

#[test]
fn what_has_no_counter_is_said() {
    let service = Ratelimitd::start(RULES);
    for descriptor in ["free=x", "nobody=x"] {
        let (code, _, error) = counters(&service, &["show", descriptor]);
        assert_eq!(code, Some(2));
        assert!(error.contains("no rule of domain \"shop\" has a counter for this request"), "{error}");
    }
    drop(service);
}
