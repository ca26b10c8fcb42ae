//! What a client of a real Envoy can send in its headers and its path: no byte and no length lifts a limit.

use serde_json::{Value, json};

use super::{any_upstream, replace, shipped_configuration, start_shipped};
use crate::support::envoy::{Bootstrap, Envoy, route};
use crate::support::http;
use crate::support::process::Ratelimitd;

/// Requests that Envoy admitted without a decision.
const FAILED_OPEN: &str = "cluster.upstream.ratelimit.failure_mode_allowed";

/// Per year, so that no window ends during a test.
const RULES: &str = "
domain: envoy
descriptors:
  - { key: header, rate_limit: { unit: year, requests_per_unit: 10 } }
  - { key: path, rate_limit: { unit: year, requests_per_unit: 10 } }
  - { key: remote_address, rate_limit: { unit: year, requests_per_unit: 10 } }
";

/// Limits by the value of the header, under this key.
fn by_header(header: &str, key: &str) -> Value {
    json!({"actions": [{"request_headers": {"header_name": header, "descriptor_key": key}}]})
}

fn envoy(service: &Ratelimitd, rate_limits: Value) -> Envoy {
    Envoy::start(&Bootstrap::new(service.grpc_port()).route(route("/", rate_limits)))
}

/// What 14 equal requests see: a limit of 10 admits 10.
fn statuses(send: impl Fn(u8) -> u16) -> (usize, usize) {
    let seen: Vec<u16> = (0..14).map(send).collect();
    let admitted = seen.iter().take_while(|status| **status == 200).count();
    (admitted, seen.iter().skip(admitted).filter(|status| **status == 429).count())
}

const LIMITED: (usize, usize) = (10, 4);

/// One byte, a word in Latin-1, a lone surrogate in the form of UTF-8.
const NOT_UTF8: [&[u8]; 3] = [b"\xff", b"caf\xe9", b"\xed\xa0\x80"];

#[test]
fn a_header_that_is_not_utf8_is_limited_by_its_value() {
    let service = Ratelimitd::start(RULES);
    let envoy = envoy(&service, json!([by_header("x-key", "header")]));
    let values = NOT_UTF8.into_iter().chain([&b"caf\xc3\xa9"[..], b"caf%E9"]);
    for value in values {
        let seen = statuses(|_| envoy.get_with_bytes(b"/", &[("x-key", value)]).status);
        assert_eq!(seen, LIMITED, "{}", value.escape_ascii());
    }
    assert_eq!(envoy.stat(FAILED_OPEN), 0);
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    assert!(metrics.contains(r#"ratelimitd_request_errors_total{kind="invalid",transport="grpc"} 0"#));
}

#[test]
fn a_header_that_is_not_utf8_lifts_no_limit_beside_it() {
    for value in NOT_UTF8 {
        let service = Ratelimitd::start(RULES);
        let limits = json!([{"actions": [{"remote_address": {}}]}, by_header("user-agent", "agent")]);
        let envoy = envoy(&service, limits);
        let seen = statuses(|number| {
            let agent = [b"agent ", value, &[b'a' + number]].concat();
            envoy.get_with_bytes(b"/", &[("user-agent", &agent)]).status
        });
        assert_eq!(seen, LIMITED, "{}", value.escape_ascii());
        assert_eq!(envoy.stat(FAILED_OPEN), 0);
    }
}

#[test]
fn a_path_of_bytes_is_refused_by_envoy_and_one_in_percent_signs_is_limited() {
    let service = Ratelimitd::start(RULES);
    let envoy = envoy(&service, json!([by_header(":path", "path")]));
    for (bytes, escaped) in NOT_UTF8.into_iter().zip(["/%ff", "/caf%e9", "/%ed%a0%80"]) {
        let raw = [b"/", bytes].concat();
        assert_eq!(envoy.get_with_bytes(&raw, &[]).status, 400, "{}", raw.escape_ascii());
        assert_eq!(statuses(|_| envoy.get(escaped).status), LIMITED, "{escaped}");
    }
}

/// Envoy's tracer passes the client's `tracestate` on to the service.
#[test]
fn a_long_trace_state_lifts_no_limit() {
    let service = Ratelimitd::start(RULES);
    let traced = Bootstrap::new(service.grpc_port()).traced();
    let envoy = Envoy::start(&traced.route(route("/", json!([by_header("x-key", "header")]))));
    for kib in [12, 17, 50] {
        let (key, state) = (format!("{kib} KiB"), format!("a={}", "x".repeat(kib * 1024)));
        let headers = [
            ("x-key", key.as_str()),
            ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            ("tracestate", &state),
        ];
        assert_eq!(statuses(|_| envoy.get_with("/", &headers).status), LIMITED, "{kib} KiB");
    }
    assert_eq!(envoy.stat(FAILED_OPEN), 0);
}

/// The action that docs/security.md names: an address of IPv6 counts as its network.
#[test]
fn a_client_of_ipv6_has_one_counter_with_the_masked_address() {
    let service = Ratelimitd::start(
        "domain: edge\ndescriptors:\n  - { key: masked_remote_address, rate_limit: { unit: year, requests_per_unit: 3 } }\n  \
         - { key: masked_remote_address, value: 192.0.2.7/32, rate_limit: { unit: year, requests_per_unit: 1 } }\n",
    );
    let upstream = any_upstream();
    let shipped = shipped_configuration(&service, &upstream);
    let shipped = replace(&shipped, "xff_num_trusted_hops: 0", "xff_num_trusted_hops: 1");
    let action = "- masked_remote_address: { v6_prefix_mask_len: 64 }";
    let envoy = start_shipped(&replace(&shipped, "- remote_address: {}", action));
    let of = |address: &str| envoy.get_with("/", &[("x-forwarded-for", address)]).status;
    let hosts = (1..=4).map(|host| of(&format!("2001:db8:0:1::{host}")));
    assert_eq!(hosts.collect::<Vec<_>>(), [200, 200, 200, 429]);
    assert_eq!(
        [of("2001:db8:0:2::1"), of("192.0.2.7"), of("192.0.2.7"), of("192.0.2.8")],
        [200, 200, 429, 200]
    );
    let page = include_str!("../../../docs/security.md");
    assert!(page.contains(action), "{action}");
}
