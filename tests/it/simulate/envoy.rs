//! Envoy's own access log, and the rules that it enforced when it wrote it.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::thread;

use serde_json::{Value, json};

use super::Simulation;
use crate::support::envoy::{Bootstrap, Envoy, route};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

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

/// Slow limits of some clients and of a path, which free a unit in ten seconds and in 2.4: a delay on a busy machine
/// stays far below that. A fast limit of the other clients, five units per second: which request gets one of these
/// depends on the very instant of the decision.
const EXACT_RULES: &str = "
domain: envoy
descriptors:
  - key: remote_address
    rate_limit: { name: per-address, unit: minute, requests_per_unit: 6, burst: 240, algorithm: gcra }
  - key: path
    value: /search
    rate_limit: { name: search, unit: hour, requests_per_unit: 400, algorithm: sliding_window }
  - key: agent
    rate_limit: { name: per-agent, unit: second, requests_per_unit: 5, burst: 20, algorithm: gcra }
";
const EXACT_MAP: &str = "
domain: envoy
descriptors:
  - - { key: remote_address, from: x-forwarded-for, take: trusted-hop 1 }
  - - { key: agent, from: user-agent }
  - entries: [{ key: path, from: path, strip: query }]
    when: x-forwarded-for exists
was_limited: flags has RL
";
const CONNECTIONS: u64 = 4;
const REQUESTS_OF_CONNECTION: u64 = 3_000;

/// Sends requests of many clients, some of which send much more than the others, one after the other.
fn send_mixed_requests(port: u16, connection: u64) {
    let stream = http::connect(port).expect("Envoy listens");
    let mut answers = BufReader::new(stream.try_clone().expect("a socket"));
    let mut requests = stream;
    let mut random = connection + 1;
    for _ in 0..REQUESTS_OF_CONNECTION {
        // A linear congruential generator (Knuth's MMIX): the traffic is the same in every run.
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (client, path) = ((random >> 33) % 30 * ((random >> 40) % 30) / 30, (random >> 50) % 5);
        let path = if path == 0 { "/search?q=x" } else { "/item" };
        // Every other client is known by its address, the rest by its agent.
        let name = match client % 2 {
            0 => format!("x-forwarded-for: 192.0.2.{client}"),
            _ => format!("user-agent: agent {client}"),
        };
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{name}\r\n\r\n");
        requests.write_all(request.as_bytes()).expect("an open connection");
        let status = read_answer(&mut answers);
        assert!(matches!(status, 200 | 429), "{status}");
    }
}

/// Reads one answer of a connection that stays open, and returns its status.
fn read_answer(answers: &mut impl BufRead) -> u16 {
    let (mut status, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        answers.read_line(&mut line).expect("an answer");
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        status = status.or_else(|| line.split(' ').nth(1)?.parse().ok());
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().expect("a number");
        }
    }
    answers.take(length).read_to_end(&mut Vec::new()).expect("a body");
    status.expect("a status line")
}

/// Envoy's logs of the same requests: in its default format, and with the time of each decision.
fn logs_of_mixed_requests() -> [String; 2] {
    let service = Plan::new(EXACT_RULES).set("response.dynamic_metadata", true).start();
    let folder = tempfile::TempDir::new().expect("a temporary directory");
    let header =
        |name: &str, key: &str| json!({"request_headers": {"header_name": name, "descriptor_key": key}});
    let per_address = json!({"actions": [header("x-forwarded-for", "remote_address")]});
    let per_agent = json!({"actions": [header("user-agent", "agent")]});
    let search = json!({"actions": [{"header_value_match": {
        "descriptor_key": "path",
        "descriptor_value": "/search",
        "headers": [
            {"name": ":path", "string_match": {"prefix": "/search"}},
            {"name": "x-forwarded-for", "present_match": true},
        ],
    }}]});
    // As docs/rollout.md recommends.
    let with_decision = json!({
        "start_time": "%START_TIME(%Y-%m-%dT%H:%M:%S.%6fZ)%",
        "decided_at_us": "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:decided_at_us)%",
        "rule": "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:rule)%",
        "method": "%REQUEST_HEADER(:METHOD)%",
        "path": "%REQUEST_HEADER(X-ENVOY-ORIGINAL-PATH?:PATH)%",
        "response_code": "%RESPONSE_CODE%",
        "response_flags": "%RESPONSE_FLAGS%",
        "x-forwarded-for": "%REQUEST_HEADER(X-FORWARDED-FOR)%",
        "user-agent": "%REQUEST_HEADER(USER-AGENT)%",
    });
    let paths = ["default.log", "decision.log"].map(|name| folder.path().join(name));
    let bootstrap = Bootstrap::new(service.grpc_port())
        .route(route("/", json!([per_address, per_agent, search])))
        .fail_closed()
        .access_log(&paths[0], None)
        .access_log(&paths[1], Some(with_decision));
    let envoy = Envoy::start(&bootstrap);
    let port = envoy.port("http");
    thread::scope(|scope| {
        for connection in 0..CONNECTIONS {
            scope.spawn(move || send_mixed_requests(port, connection));
        }
    });
    paths.map(|path| {
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        let is_whole = |log: &str| {
            log.lines().count() as u64 == CONNECTIONS * REQUESTS_OF_CONNECTION && log.ends_with('\n')
        };
        wait::expect("the log", || is_whole(&read()));
        read()
    })
}

#[test]
fn a_log_with_the_time_of_the_decision_agrees_and_the_differences_of_others_are_of_the_clock() {
    let [default, with_decision] = logs_of_mixed_requests();
    let simulated = |log: &str, more: &str| {
        let map = format!("{EXACT_MAP}{more}\n");
        let ended = Simulation::new(EXACT_RULES).map(&map).log("access.log", log).succeed();
        assert_eq!(ended.method("unreadable"), 0, "{}", ended.stdout);
        assert!(ended.of_rule("per-address", "over") > 1_000, "{}", ended.stdout);
        assert!(ended.of_rule("search", "over") > 100, "{}", ended.stdout);
        println!("{more}: {}", ended.report["method"]["agreement"]);
        ended
    };
    // As docs/rollout.md recommends; all requests.
    let time = "time: [{ from: decided_at_us, unit: us }, { from: start_time, unit: rfc3339 }]";
    let exact = simulated(&with_decision, time);
    assert_eq!(exact.report["totals"]["requests"], CONNECTIONS * REQUESTS_OF_CONNECTION);
    assert!(exact.of_rule("per-agent", "over") > 100, "{}", exact.stdout);
    let agreement = &exact.report["method"]["agreement"];
    assert!(agreement["agreement_ppm"].as_u64() >= Some(995_000), "{agreement}");
    // The log names the rule of each denial.
    let denied: Vec<Value> =
        with_decision.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let denied = denied.iter().filter(|line| line["response_flags"] == "RL");
    let rules: Vec<_> = denied.map(|line| line["rule"].as_str().expect("a rule")).collect();
    for rule in ["per-address", "per-agent", "search"] {
        assert!(rules.iter().filter(|named| **named == rule).count() > 50, "{rule}");
    }
    assert!(rules.iter().all(|rule| ["per-address", "per-agent", "search"].contains(rule)));
    // The times at which requests began, in milliseconds and in microseconds.
    let slow = "keep: x-forwarded-for exists";
    let of_beginning = format!("{slow}\ntime: {{ from: start_time }}");
    for (log, more) in [(&default, slow), (&with_decision, of_beginning.as_str())] {
        let ended = simulated(log, more);
        let agreement = &ended.report["method"]["agreement"];
        let explained = agreement["by_shift"].as_array().and_then(|shifts| shifts.last()).expect("shifts");
        assert!(explained["agreement_ppm"].as_u64() >= Some(995_000), "{agreement}");
    }
}
