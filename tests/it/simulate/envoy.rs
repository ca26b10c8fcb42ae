//! Envoy's own access log, and the rules that it enforced when it wrote it.

use serde_json::{Value, json};

use super::Simulation;
use crate::support::envoy::{Bootstrap, Envoy, route};
use crate::support::process::Ratelimitd;
use crate::support::wait;

/// A year, so that no window ends during the test.
const RULES: &str = "
domain: envoy
descriptors:
  - key: remote_address
    rate_limit: { name: per-address, unit: year, requests_per_unit: 20, algorithm: fixed_window }
";
const MAP: &str = "
domain: envoy
descriptors:
  - - { key: remote_address, from: x-forwarded-for, take: trusted-hop 1 }
good: code == 200
was_limited: flags has RL
";
const CLIENTS: usize = 9;
const REQUESTS: usize = 300;

/// Envoy's log of requests of some clients, of which the busier ones are denied in the end.
fn log_of(format: Option<Value>) -> String {
    let service = Ratelimitd::start(RULES);
    let folder = tempfile::TempDir::new().expect("a temporary directory");
    let path = folder.path().join("access.log");
    let header =
        json!({"request_headers": {"header_name": "x-forwarded-for", "descriptor_key": "remote_address"}});
    let bootstrap = Bootstrap::new(service.grpc_port())
        .route(route("/", json!([{"actions": [header]}])))
        .fail_closed()
        .access_log(&path, format);
    let envoy = Envoy::start(&bootstrap);
    for request in 0..REQUESTS {
        // Client n of nine sends a share of about n in 45.
        let client = (request * 7 % 45).isqrt() % CLIENTS;
        let answer = envoy.get_with("/a?b=c", &[("x-forwarded-for", &format!("192.0.2.{client}"))]);
        assert!(matches!(answer.status, 200 | 429), "{answer:?}");
    }
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    wait::expect("the log", || read().lines().count() == REQUESTS && read().ends_with('\n'));
    read()
}

#[test]
fn the_simulation_of_its_log_agrees_with_what_envoy_did() {
    let gateway = json!({
        "start_time": "%START_TIME%",
        "method": "%REQUEST_HEADER(:METHOD)%",
        "x-envoy-origin-path": "%REQUEST_HEADER(X-ENVOY-ORIGINAL-PATH?:PATH)%",
        "response_code": "%RESPONSE_CODE%",
        "response_flags": "%RESPONSE_FLAGS%",
        "x-forwarded-for": "%REQUEST_HEADER(X-FORWARDED-FOR)%",
    });
    for (format, name) in [(None, "envoy"), (Some(gateway), "envoy-json")] {
        let log = log_of(format);
        let ended = Simulation::new(RULES).map(MAP).log("access.log", &log).succeed();
        assert_eq!(ended.report["method"]["inputs"][0]["format"], name, "{log}");
        assert_eq!(
            (ended.method("lines"), ended.method("unreadable")),
            (REQUESTS as u64, 0),
            "{}",
            ended.stdout
        );
        let agreement = &ended.report["method"]["agreement"];
        assert_eq!(agreement["agreement_ppm"], 1_000_000, "{agreement}");
        let denied = agreement["both_deny"].as_u64().expect("a count");
        assert_eq!(denied, log.matches(" RL ").count().max(log.matches("\"RL\"").count()) as u64);
        assert!((50..250).contains(&denied), "{denied}");
        assert_eq!(ended.report["totals"]["good_denied"], 0, "denied requests have the code 429");
        assert_eq!(ended.method("clock_resolution_us"), 1_000);
    }
}
