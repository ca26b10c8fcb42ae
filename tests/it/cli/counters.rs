//! `ratelimitctl counters`: shows and resets the counters of a descriptor through the admin port, in memory and in
//! Redis.

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
    counters_of(service, "shop", arguments)
}

pub(crate) fn counters_of(
    service: &Ratelimitd,
    domain: &str,
    arguments: &[&str],
) -> (Option<i32>, String, String) {
    let admin = format!("http://127.0.0.1:{}", service.admin_port());
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .arg("counters")
        .args(&arguments[..1])
        .args(["--admin", &admin, "--domain", domain])
        .args(&arguments[1..])
        .output()
        .expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

/// The remaining units of each limit of user=ann.
fn remaining(service: &Ratelimitd) -> Vec<(String, u64)> {
    let (code, answer, error) = counters(service, &["show", "--json", "user=ann"]);
    assert_eq!(code, Some(0), "{error}");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let counters = answer["counters"].as_array().expect("a list");
    counters
        .iter()
        .map(|counter| {
            let name = counter["name"].as_str().expect("a name").to_owned();
            (name, counter["remaining"].as_u64().expect("a number"))
        })
        .collect()
}

pub(crate) async fn check_show_and_reset(service: &Ratelimitd, prefix: &str) {
    let mut rls = Rls::connect(service.grpc_port()).await;
    let named = |remaining: [u64; 3]| -> Vec<(String, u64)> {
        ["per-minute", "per-day", "plain"].map(str::to_owned).into_iter().zip(remaining).collect()
    };
    assert_eq!(remaining(service), named([3, 5, 4]));
    for expected in [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit] {
        assert_eq!(rls.send_one("shop", &[("user", "ann")]).await.0, expected);
    }
    // Only the limit `plain` is postpaid and counts denied hits.
    assert_eq!(remaining(service), named([0, 2, 0]));
    assert_eq!(remaining(service), named([0, 2, 0]), "show changes nothing");

    let (code, output, error) = counters(service, &["reset", "user=ann"]);
    assert_eq!(code, Some(0), "{error}");
    let lines: Vec<_> = output.lines().collect();
    assert_eq!(lines.len(), 3, "{output}");
    assert!(lines.iter().all(|line| line.ends_with(": reset") && line.starts_with(prefix)), "{output}");
    assert_eq!(remaining(service), named([3, 5, 4]));
    assert_eq!(rls.send_one("shop", &[("user", "ann")]).await.0, Code::Ok, "no cache has kept the denial");
    for message in ["resetting a counter through the admin port", "counter reset through the admin port"] {
        let log = service.log_with(message);
        // The log has no value of a request.
        let is_masked = |line: &str| line.contains("shop user=#") && !line.contains("ann");
        assert!(log.lines().any(|line| line.contains(message) && is_masked(line)), "{log}");
    }
    let (_, output, _) = counters(service, &["reset", "user=bob"]);
    assert!(output.lines().all(|line| line.ends_with(": already empty")), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_in_memory_are_shown_and_reset() {
    check_show_and_reset(&Ratelimitd::start(RULES), "{shop|user=ann}#").await;
}

#[test]
fn a_request_without_a_counter_is_an_error() {
    let service = Ratelimitd::start(RULES);
    for descriptor in ["free=x", "unknown=x"] {
        let (code, _, error) = counters(&service, &["show", descriptor]);
        assert_eq!(code, Some(2));
        assert!(error.contains("no counted limit in domain \"shop\""), "{error}");
    }
    for (domain, end) in [("shp", "; did you mean \"shop\"?\n"), ("other", "\n")] {
        for action in ["show", "reset"] {
            let (code, _, error) = counters_of(&service, domain, &[action, "user=ann"]);
            let expected = format!("ratelimitctl counters: no rules for domain {domain:?}{end}");
            assert_eq!((code, error), (Some(2), expected));
        }
    }
    let port = service.admin_port();
    drop(service);
    let (code, _, error) = run(port, &["user=ann"]);
    assert_eq!(code, Some(2));
    let expected = format!("cannot connect to 127.0.0.1:{port}: ");
    assert!(error.contains(&expected) && error.ends_with("with --admin\n"), "{error}");
}

fn run(port: u16, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
        .args(["counters", "show", "--admin", &format!("127.0.0.1:{port}"), "--domain", "shop"])
        .args(arguments)
        .output()
        .expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_port_that_is_not_the_admin_port_is_named() {
    let service = Ratelimitd::start(RULES);
    let (code, _, error) = run(service.http_port(), &["user=ann"]);
    assert_eq!(code, Some(2));
    let expected =
        format!("127.0.0.1:{} answers 404 Not Found: it is not the admin port", service.http_port());
    assert!(error.contains(&expected), "{error}");
}

/// The burst that is written for a limit of 0 is never admitted.
#[test]
fn the_largest_cost_of_a_limit_of_0_is_0() {
    let limit = "{ name: off, unit: minute, requests_per_unit: 0, algorithm: gcra, burst: 5 }";
    let service =
        Ratelimitd::start(&format!("domain: shop\ndescriptors:\n  - {{ key: user, rate_limit: {limit} }}\n"));
    let (code, answer, error) = counters(&service, &["show", "--json", "user=ann"]);
    assert_eq!(code, Some(0), "{error}");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let counter = &answer["counters"][0];
    assert_eq!((&counter["limit"], &counter["remaining"]), (&0.into(), &0.into()), "{answer}");
}

#[test]
fn counters_of_limits_that_requests_bring_can_be_named() {
    let service = Ratelimitd::start(RULES);
    let (code, text, error) = run(service.admin_port(), &["--limit", "7/15minute", "any=x"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(text.contains("7 of 7 left"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_of_a_limit_that_no_request_has_brought_fails_and_says_what_to_do() {
    let service = Ratelimitd::start(RULES);
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(rls.send_one("shop", &[("user", "ann")]).await.0, Code::Ok);
    // The user means the limit of the rule.
    for arguments in [&["reset", "--limit", "5/year", "user=ann"][..], &["reset", "--limit", "5/week", "a=b"]]
    {
        let (code, text, error) = counters(&service, arguments);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{error}");
        let parts = ["nothing was reset", "leave out --limit"];
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    assert_eq!(remaining(&service)[0].1, 2, "the counters of the rule are as before");
    let brought = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
        let address = format!("127.0.0.1:{}", service.grpc_port());
        command.args(["check", "--domain", "shop", "--limit", "7/week", "--address", &address]);
        command.args(arguments).output().expect("the binary runs").status.success()
    };
    assert!(brought(&["a=b"]));
    let (code, text, error) = counters(&service, &["reset", "--limit", "7/week", "a=b"]);
    assert_eq!(code, Some(0), "{error}");
    assert!(text.ends_with(": reset\n"), "{text}");
}

#[test]
fn only_a_reset_takes_a_reason() {
    let help = |action: &str| {
        let command = &mut Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
        let output = command.args(["counters", action, "--help"]).output().expect("the binary runs");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    assert!(!help("show").contains("--reason") && help("reset").contains("--reason"));
}
