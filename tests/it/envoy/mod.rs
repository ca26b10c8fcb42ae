//! A real Envoy in front of the running binary, on the memory store.
//!
//! Limits are per year if the end of the window does not matter, so that no window ends during a test.

mod failures;
mod feedback;
mod headers;
mod llm_gateway;
mod mcp_tools;
mod pages;
pub(crate) mod settle;
mod slots;
mod soft_limits;
mod waiting_room;

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::envoy::{Bootstrap, Envoy, per_filter_route, route};
use crate::support::http::Response;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::wait;

const YEAR_S: u64 = 365 * 24 * 3600;

/// Requests that Envoy admitted without a decision. It counts them at the cluster of the route, not at the listener.
const FAILED_OPEN: &str = "cluster.upstream.ratelimit.failure_mode_allowed";

const RULES: &str = "
domain: envoy
descriptors:
  - key: generic_key
    value: three
    rate_limit: { unit: year, requests_per_unit: 3, algorithm: fixed_window }
  - key: generic_key
    value: ten
    rate_limit: { unit: year, requests_per_unit: 10, algorithm: fixed_window }
  - key: generic_key
    value: nested
    rate_limit: { unit: year, requests_per_unit: 100, algorithm: fixed_window }
    descriptors:
      - key: user
        rate_limit: { unit: year, requests_per_unit: 2, algorithm: fixed_window }
      - key: user
        value: vip
        rate_limit: { unit: year, requests_per_unit: 4, algorithm: fixed_window }
  - key: header
    rate_limit: { unit: year, requests_per_unit: 2, algorithm: fixed_window }
  - key: listener
    value: tcp
    rate_limit: { unit: year, requests_per_unit: 2, algorithm: fixed_window }
";

/// The action that sends the descriptor `(generic_key, value)`.
fn generic_key(value: &str) -> Value {
    json!({"generic_key": {"descriptor_value": value}})
}

/// A route table of one route, whose requests send the descriptor `(generic_key, value)`.
fn one_route(service: &Ratelimitd, value: &str) -> Bootstrap {
    Bootstrap::new(service.grpc_port()).route(route("/", json!([{"actions": [generic_key(value)]}])))
}

/// The status and the value of `x-ratelimit-remaining`.
fn status_and_remaining(answer: &Response) -> (u16, Option<u64>) {
    (answer.status, answer.header("x-ratelimit-remaining").map(|value| value.parse().expect("a number")))
}

#[test]
fn a_value_as_long_as_envoy_allows_is_limited() {
    let header = json!({"request_headers": {"header_name": "x-key", "descriptor_key": "header"}});
    let unknown = generic_key("unknown");
    // The longest message, and the last of three descriptors: together they have the same value four or six times.
    let table = [(262_144, json!([unknown, header])), (524_288, json!([unknown, header, header, header]))];
    for (max_message_bytes, last) in table {
        let service = Plan::new(RULES).set("server.max_message_bytes", max_message_bytes).start();
        let rate_limits = json!([{"actions": [header]}, {"actions": [header, header]}, {"actions": last}]);
        let envoy = Envoy::start(&Bootstrap::new(service.grpc_port()).route(route("/", rate_limits)));
        for length in [16_385, 60_000] {
            let value = "x".repeat(length);
            let codes = [(); 4].map(|()| envoy.get_with("/", &[("x-key", &value)]).status);
            assert_eq!(codes, [200, 200, 429, 429], "{length} bytes");
        }
        assert_eq!(envoy.stat(FAILED_OPEN), 0);
    }
}

#[test]
fn over_the_limit_is_429_with_exact_headers() {
    let service = Ratelimitd::start(RULES);
    let envoy = Envoy::start(&one_route(&service, "three"));

    for remaining in [2, 1, 0] {
        let answer = envoy.get("/");
        assert_eq!(status_and_remaining(&answer), (200, Some(remaining)), "{answer:?}");
        assert_eq!(answer.header("x-envoy-ratelimited"), None);
        assert_eq!(answer.body, "upstream");
    }

    let before = wait::unix_seconds();
    let answer = envoy.get("/");
    let after = wait::unix_seconds();
    assert_eq!(status_and_remaining(&answer), (429, Some(0)), "{answer:?}");
    assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(answer.header("x-ratelimit-limit"), Some("3, 3;w=31536000"));

    // Windows begin at multiples of their length since 1970. The seconds until the end are rounded up.
    let left_at = |now: u64| YEAR_S - now % YEAR_S;
    let reset: u64 = answer.header("x-ratelimit-reset").expect("a reset").parse().expect("a number");
    assert!(
        (left_at(after)..=left_at(before)).contains(&reset),
        "{reset} s is not the time until the end of the year"
    );
}

#[test]
fn the_client_reads_why_it_is_denied() {
    let service = Plan::new(RULES).set("response.problem", true).start();
    let envoy = Envoy::start(&one_route(&service, "three"));
    for _ in 0..3 {
        let answer = envoy.get("/");
        assert_eq!((answer.status, answer.body.as_str()), (200, "upstream"));
    }
    let denied = envoy.get("/");
    assert_eq!((denied.status, denied.header("content-type")), (429, Some("application/problem+json")));
    let body: Value = serde_json::from_str(&denied.body).expect("JSON");
    assert_eq!(body["violated-policies"], json!(["envoy.generic_key_three"]), "{body}");
}

#[test]
fn a_request_without_a_rule_is_admitted_without_headers() {
    let service = Ratelimitd::start(RULES);
    let envoy = Envoy::start(&one_route(&service, "unknown").fail_closed());
    for _ in 0..5 {
        let answer = envoy.get("/");
        assert_eq!(status_and_remaining(&answer), (200, None), "{answer:?}");
        assert_eq!(answer.header("x-ratelimit-limit"), None);
    }
}

#[test]
fn nested_descriptors_are_counted_per_value_at_the_last_level() {
    let service = Ratelimitd::start(RULES);
    let user = json!({"request_headers": {"header_name": "x-user", "descriptor_key": "user"}});
    let both = json!([{"actions": [generic_key("nested"), user]}]);
    let envoy = Envoy::start(&Bootstrap::new(service.grpc_port()).route(route("/", both)).fail_closed());

    let table = [
        (Some("ann"), (200, Some(1))), // the rule of the key `user`: two for each value
        (Some("ann"), (200, Some(0))),
        (Some("ann"), (429, Some(0))),
        (Some("bob"), (200, Some(1))), // another counter
        (Some("vip"), (200, Some(3))), // the rule with the exact value is preferred
        (None, (200, None)),           // no header, so no descriptor and no call
        (Some("bob"), (200, Some(0))),
    ];
    for (row, (user, expected)) in table.into_iter().enumerate() {
        let headers: Vec<(&str, &str)> = user.map(|user| ("x-user", user)).into_iter().collect();
        let answer = envoy.get_with("/", &headers);
        assert_eq!(status_and_remaining(&answer), expected, "row {row}: {answer:?}");
    }
}

#[test]
fn the_descriptor_with_least_remaining_is_reported_and_any_can_deny() {
    let service = Ratelimitd::start(RULES);
    let both = json!([{"actions": [generic_key("ten")]}, {"actions": [generic_key("three")]}]);
    let envoy = Envoy::start(&Bootstrap::new(service.grpc_port()).route(route("/", both)).fail_closed());

    for remaining in [2, 1, 0] {
        let answer = envoy.get("/");
        assert_eq!(status_and_remaining(&answer), (200, Some(remaining)), "{answer:?}");
        assert_eq!(answer.header("x-ratelimit-limit"), Some("3, 10;w=31536000, 3;w=31536000"));
    }
    assert_eq!(status_and_remaining(&envoy.get("/")), (429, Some(0)));
}

#[test]
fn a_denied_request_charges_no_other_descriptor() {
    let service = Ratelimitd::start(RULES);
    let both = json!([{"actions": [generic_key("ten")]}, {"actions": [generic_key("three")]}]);
    let ten = json!([{"actions": [generic_key("ten")]}]);
    let routes = Bootstrap::new(service.grpc_port()).route(route("/both", both)).route(route("/ten", ten));
    let envoy = Envoy::start(&routes.fail_closed());

    let codes: Vec<u16> = (0..6).map(|_| envoy.get("/both").status).collect();
    assert_eq!(codes, [200, 200, 200, 429, 429, 429]);
    assert_eq!(status_and_remaining(&envoy.get("/ten")), (200, Some(6)), "3 admitted requests and this one");
}

#[test]
fn hits_addend_is_the_cost_of_a_request() {
    let service = Ratelimitd::start(RULES);
    let costly = json!([{"actions": [generic_key("ten")], "hits_addend": {"number": 4}}]);
    let free = json!([{"actions": [generic_key("ten")], "hits_addend": {"number": 0}}]);
    let routes = Bootstrap::new(service.grpc_port())
        .route(per_filter_route("/costly", costly))
        .route(per_filter_route("/free", free))
        .route(route("/", json!([{"actions": [generic_key("ten")]}])));
    let envoy = Envoy::start(&routes.fail_closed());

    let table = [
        ("/costly", (200, Some(6))),
        ("/free", (200, Some(6))), // a cost of 0 is a peek: it takes nothing
        ("/costly", (200, Some(2))),
        ("/costly", (429, Some(2))), // four do not fit, and the remaining two stay
        ("/", (200, Some(1))),
        ("/", (200, Some(0))),
        ("/free", (429, Some(0))), // nothing remains
    ];
    for (row, (path, expected)) in table.into_iter().enumerate() {
        let answer = envoy.get(path);
        assert_eq!(status_and_remaining(&answer), expected, "row {row}: {path}: {answer:?}");
    }
}

#[test]
fn a_route_can_override_the_limit() {
    let service = Ratelimitd::start(RULES);
    let limit = json!({"rate_limit": {"requests_per_unit": 1, "unit": "YEAR"}});
    let overridden = json!([{"actions": [generic_key("three")], "limit": limit}]);
    let routes = Bootstrap::new(service.grpc_port())
        .route(route("/tight", overridden))
        .route(route("/", json!([{"actions": [generic_key("three")]}])));
    let envoy = Envoy::start(&routes.fail_closed());

    let answer = envoy.get("/tight");
    assert_eq!(status_and_remaining(&answer), (200, Some(0)), "{answer:?}");
    assert_eq!(answer.header("x-ratelimit-limit"), Some("1, 1;w=31536000"));
    assert_eq!(status_and_remaining(&envoy.get("/tight")), (429, Some(0)));
    assert_eq!(
        status_and_remaining(&envoy.get("/")),
        (200, Some(2)),
        "the rule has another counter than the override"
    );
}

#[test]
fn during_an_outage_the_failure_mode_of_the_filter_applies_until_the_restart() {
    let mut service = Ratelimitd::start(RULES);
    let open = Envoy::start(&one_route(&service, "three"));
    let closed = Envoy::start(&one_route(&service, "ten").fail_closed());
    assert_eq!(
        (status_and_remaining(&open.get("/")), status_and_remaining(&closed.get("/"))),
        ((200, Some(2)), (200, Some(9)))
    );

    service.kill();
    for _ in 0..5 {
        assert_eq!(status_and_remaining(&open.get("/")), (200, None), "not decided: admitted");
        assert_eq!(status_and_remaining(&closed.get("/")), (500, None), "not decided: denied");
    }
    assert_eq!((open.stat(FAILED_OPEN), closed.stat(FAILED_OPEN)), (5, 0));

    service.restart();
    wait::expect("decisions again, failing open", || status_and_remaining(&open.get("/")) == (200, Some(2)));
    wait::expect("decisions again, failing closed", || {
        status_and_remaining(&closed.get("/")) == (200, Some(9))
    });
}

#[test]
fn the_tcp_filter_closes_connections_over_the_limit() {
    let service = Ratelimitd::start(RULES);
    let envoy = Envoy::start(&Bootstrap::new(service.grpc_port()).fail_closed());

    for _ in 0..2 {
        assert_eq!(envoy.get_over_tcp().expect("an answer").body, "upstream");
    }
    assert!(envoy.get_over_tcp().is_none(), "the third connection is closed without data");
    assert_eq!(envoy.stat("ratelimit.tcp.over_limit"), 1);
    assert_eq!(envoy.stat("ratelimit.tcp.ok"), 2);
}

#[test]
fn health_checks_of_envoy_follow_shutdown_and_restart() {
    let mut service = Plan::new(RULES).set("server.drain", "1s").start();
    let envoy = Envoy::start(&one_route(&service, "ten").health_checked().fail_closed());
    let healthy = || envoy.stat("cluster.ratelimit.membership_healthy");
    wait::expect("a healthy service", || healthy() == 1);
    assert_eq!(status_and_remaining(&envoy.get("/")), (200, Some(9)));

    service.terminate();
    wait::expect("a service that shuts down is no longer used", || healthy() == 0);
    assert_eq!(envoy.get("/").status, 500);
    assert!(service.wait_exit().success(), "SIGTERM ends the process with code 0");

    service.restart();
    wait::expect("a healthy service again", || healthy() == 1);
    assert_eq!(status_and_remaining(&envoy.get("/")), (200, Some(9)));
}

#[test]
fn the_default_timeout_of_20_ms_is_enough() {
    let service = Ratelimitd::start(RULES);
    let envoy = Envoy::start(&one_route(&service, "three").default_timeout().fail_closed());
    let codes: Vec<u16> = (0..200).map(|_| envoy.get("/").status).collect();
    let count = |wanted: u16| codes.iter().filter(|code| **code == wanted).count();

    // A busy machine can delay any process by 20 ms, so a few answers may be late. A service that is too slow is late
    // nearly always. A late decision is made nevertheless: it counts against the limit.
    let (admitted, denied, late) = (count(200), count(429), count(500));
    assert_eq!(admitted + denied + late, 200, "{codes:?}");
    assert!(late <= 20 && admitted <= 3 && admitted + late >= 3, "{codes:?}");
}

/// deploy/envoy.yaml with `limiter` and `upstream` in place of the containers of docker-compose.yml.
fn shipped_configuration(limiter: &Ratelimitd, upstream: &Envoy) -> String {
    let path = in_project("deploy/envoy.yaml");
    let text = std::fs::read_to_string(path).expect("Envoy's configuration");
    let local = |port: u16| format!("address: 127.0.0.1, port_value: {port}");
    let replacements = [
        ("address: 127.0.0.1, port_value: 9901", local(0)),
        ("address: 0.0.0.0, port_value: 10000", local(0)),
        ("address: upstream, port_value: 5678", local(upstream.port("http"))),
        ("address: ratelimitd, port_value: 8081", local(limiter.grpc_port())),
        // Without it 20 ms, which may not be enough on a busy machine.
        ("domain: edge", "domain: edge\n                      timeout: 5s".to_owned()),
    ];
    replacements.iter().fold(text, |text, (from, to)| replace(&text, from, to))
}

fn in_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn replace(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "deploy/envoy.yaml has no `{from}`");
    text.replace(from, to)
}

fn start_shipped(configuration: &str) -> Envoy {
    let envoy = Envoy::start_text(configuration);
    wait::expect("the service is healthy", || envoy.stat("cluster.ratelimitd.membership_healthy") == 1);
    envoy
}

fn any_upstream() -> Envoy {
    Envoy::start(&Bootstrap::new(9).route(route("/", json!([]))))
}

/// docker-compose.yml without the containers: its Envoy configuration, and the rules in the image.
#[test]
fn the_setup_of_docker_compose_answers_429_after_the_limit() {
    let rules = in_project("config/rules");
    let service = Plan::default().set("rules.path", rules.to_string_lossy()).start();
    let upstream = any_upstream();
    let envoy = start_shipped(&shipped_configuration(&service, &upstream));
    let codes: Vec<u16> = (0..20).map(|_| envoy.get("/").status).collect();
    assert_eq!(codes[0], 200, "{codes:?}");
    assert!(codes.contains(&429) && codes.iter().all(|code| [200, 429].contains(code)), "{codes:?}");
}

/// The limit of config/rules/edge.yaml, but per year, so that no unit returns during a test.
const PER_ADDRESS: &str = "
domain: edge
descriptors:
  - { key: remote_address, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: remote_address, value: 192.0.2.10, rate_limit: { unlimited: true } }
";

#[test]
fn a_client_cannot_choose_its_address_with_x_forwarded_for() {
    let service = Ratelimitd::start(PER_ADDRESS);
    let upstream = any_upstream();
    let envoy = start_shipped(&shipped_configuration(&service, &upstream));
    let forged = (1..=8).map(|host| format!("198.51.100.{host}"));
    let headers: Vec<String> =
        forged.chain(["192.0.2.10".to_owned(), "192.0.2.10, 127.0.0.1".to_owned()]).collect();
    let status = |header: &String| envoy.get_with("/", &[("x-forwarded-for", header.as_str())]).status;
    let codes: Vec<u16> = headers.iter().map(status).collect();
    assert_eq!(codes, [200, 200, 200, 429, 429, 429, 429, 429, 429, 429], "{headers:?}");
    assert_eq!(envoy.get("/").status, 429, "one client, with or without the header");
}

#[test]
fn behind_a_trusted_proxy_a_client_has_the_address_that_the_proxy_appended() {
    let service = Ratelimitd::start(PER_ADDRESS);
    let upstream = any_upstream();
    let shipped = shipped_configuration(&service, &upstream);
    let envoy = start_shipped(&replace(&shipped, "xff_num_trusted_hops: 0", "xff_num_trusted_hops: 1"));
    let table = [
        // (the header as the proxy sends it: what the client sent, and the address of the client; status)
        ("198.51.100.1", 200),
        ("192.0.2.10, 198.51.100.1", 200), // the exempt address, chosen by the client
        ("198.51.100.7, 198.51.100.1", 200),
        ("198.51.100.8, 198.51.100.1", 429),
        ("192.0.2.10, 198.51.100.1", 429),
        ("198.51.100.2", 200),             // another client
        ("198.51.100.1, 192.0.2.10", 200), // the exempt address, appended by the proxy
    ];
    for (row, (header, status)) in table.into_iter().enumerate() {
        let answer = envoy.get_with("/", &[("x-forwarded-for", header)]);
        assert_eq!(answer.status, status, "row {row}: {header}");
    }
}
