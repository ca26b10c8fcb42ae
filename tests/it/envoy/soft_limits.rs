//! Soft limits and `reserve` behind a real Envoy: the header reaches the upstream, and the calls of Envoy Gateway and
//! Envoy AI Gateway, a check before the request and a charge at the end of the stream, hold a budget.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cli::counters::counters_of;
use crate::support::envoy::Envoy;
use crate::support::process::Ratelimitd;
use crate::support::{http, wait};

const RULES: &str = "
domain: llm
descriptors:
  - key: user
    rate_limit: { name: soft, unit: year, requests_per_unit: 2, on_over: announce, near: 0.5 }
  - key: tenant
    rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window, reserve: 500 }
";

const TYPES: &str = "type.googleapis.com/envoy.extensions";

fn filter(name: &str, kind: &str, config: Value) -> Value {
    let mut config = config;
    config["@type"] = json!(format!("{TYPES}.filters.http.{kind}"));
    json!({"name": format!("envoy.filters.http.{name}"), "typed_config": config})
}

fn connection_manager(name: &str, filters: Value, route: Value) -> Value {
    json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": format!("{TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": name,
            "http_filters": filters,
            "route_config": {"virtual_hosts": [{"name": name, "domains": ["*"], "routes": [route]}]},
        },
    })
}

fn router() -> Value {
    filter("router", "router.v3.Router", json!({}))
}

fn cluster(name: &str, address: Value, options: Value) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}]},
        "typed_extension_protocol_options": options,
    })
}

/// The rate limits that Envoy Gateway makes of a rule with `cost.request.number: 0` and `cost.response` from metadata:
/// the same actions twice. A request without the header `x-tenant` meets the soft limit only.
fn rate_limits() -> Value {
    let entry =
        |header: &str, key: &str| json!({"request_headers": {"header_name": header, "descriptor_key": key}});
    let tenant = [entry("x-tenant", "tenant")];
    json!([
        {"actions": [entry("x-user", "user")]},
        {"actions": tenant, "hits_addend": {"number": 0}},
        {
            "actions": tenant,
            "hits_addend": {"format": "%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_total_token)%"},
            "apply_on_stream_done": true,
        },
    ])
}

/// An Envoy in front of the service, and an upstream that reports the tokens that the request names, and the announced
/// limits that it has seen.
fn configuration(rls_port: u16, upstream: &Path) -> Value {
    let any_port = json!({"socket_address": {"address": "127.0.0.1", "port_value": 0}});
    let pipe = json!({"pipe": {"path": upstream}});
    let tokens =
        json!({"metadata_namespace": "io.envoy.ai_gateway", "key": "llm_total_token", "type": "NUMBER"});
    let filters = json!([
        // Before the rate-limit filter: a client's own header must not pass for an announcement.
        filter(
            "header_mutation",
            "header_mutation.v3.HeaderMutation",
            json!({
                "mutations": {"request_mutations": [{"remove": "x-ratelimit-announce"}]},
            })
        ),
        filter(
            "header_to_metadata",
            "header_to_metadata.v3.Config",
            json!({
                "response_rules": [{"header": "x-tokens", "on_header_present": tokens}],
            })
        ),
        filter(
            "ratelimit",
            "ratelimit.v3.RateLimit",
            json!({
                "domain": "llm",
                "timeout": "5s",
                "failure_mode_deny": true,
                "rate_limit_service": {
                    "grpc_service": {"envoy_grpc": {"cluster_name": "ratelimit"}},
                    "transport_api_version": "V3",
                },
            })
        ),
        router(),
    ]);
    let route = json!({
        "match": {"prefix": "/"},
        "route": {"cluster": "upstream"},
        "typed_per_filter_config": {"envoy.filters.http.ratelimit": {
            "@type": format!("{TYPES}.filters.http.ratelimit.v3.RateLimitPerRoute"),
            "rate_limits": rate_limits(),
        }},
    });
    let header = |name: &str, value: &str| json!({"header": {"key": name, "value": value}});
    let answer = json!({
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_string": "upstream"}},
        "response_headers_to_add":
            [header("x-tokens", "%REQ(x-cost)%"), header("x-seen", "%REQ(x-ratelimit-announce)%")],
    });
    let http2 = json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": format!("{TYPES}.upstreams.http.v3.HttpProtocolOptions"),
        "explicit_http_config": {"http2_protocol_options": {}},
    }});
    let rls = json!({"socket_address": {"address": "127.0.0.1", "port_value": rls_port}});
    let listener = |name: &str, address: Value, manager: Value| json!({"name": name, "address": address, "filter_chains": [{"filters": [manager]}]});
    json!({
        "admin": {"address": any_port},
        "static_resources": {
            "listeners": [
                listener("http", any_port.clone(), connection_manager("ingress", filters, route)),
                listener("upstream", pipe.clone(), connection_manager("upstream", json!([router()]), answer)),
            ],
            "clusters": [cluster("ratelimit", rls, http2), cluster("upstream", pipe, json!({}))],
        },
    })
}

#[test]
fn an_announcement_reaches_the_upstream_and_a_client_cannot_forge_it() {
    let (directory, service) = (TempDir::new().expect("a directory"), Ratelimitd::start(RULES));
    let upstream = directory.path().join("upstream.sock");
    let envoy = Envoy::start_text(&configuration(service.grpc_port(), &upstream).to_string());
    let seen = |headers: &[(&str, &str)]| {
        let answer = envoy.get_with("/", headers);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.header("x-seen").unwrap_or_default().to_owned()
    };
    let forged = ("x-ratelimit-announce", "soft;over");
    assert_eq!(seen(&[("x-user", "ann"), forged]), "", "the client's own header is removed");
    assert_eq!(seen(&[("x-user", "ann")]), "soft;near");
    assert_eq!(seen(&[("x-user", "ann"), forged]), "soft;over");
}

#[test]
fn the_calls_of_envoy_gateway_hold_a_budget() {
    let (directory, service) = (TempDir::new().expect("a directory"), Ratelimitd::start(RULES));
    let upstream = directory.path().join("upstream.sock");
    let envoy = Envoy::start_text(&configuration(service.grpc_port(), &upstream).to_string());
    let ask = |tenant: &str, cost: Option<&str>| {
        let cost = cost.map(|cost| ("x-cost", cost));
        let headers: Vec<_> = [("x-tenant", tenant)].into_iter().chain(cost).collect();
        envoy.get_with("/", &headers).status
    };
    let charges = || {
        let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
        let series = r#"ratelimitd_reserve_total{domain="llm",kind="charge",rule="llm.tenant"} "#;
        metrics.lines().find_map(|line| line.strip_prefix(series)?.parse::<u64>().ok()).unwrap_or(0)
    };
    let left = |tenant: &str| -> Value {
        let (_, shown, _) = counters_of(&service, "llm", &["show", "--json", &format!("tenant={tenant}")]);
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        shown["counters"][0]["remaining"].clone()
    };
    // Envoy makes the call of the charge after the response, so the test waits for it.
    assert_eq!(ask("acme", Some("120")), 200);
    wait::expect("the first charge", || charges() == 1);
    assert_eq!(left("acme"), 880);
    assert_eq!(ask("acme", Some("700")), 200);
    wait::expect("the second charge", || charges() == 2);
    assert_eq!(left("acme"), 180);
    assert_eq!(ask("acme", Some("1")), 429, "500 units are not left");
    // A stream whose upstream reports no usage: Envoy leaves the charge out, and the units stay taken.
    assert_eq!(ask("silent", None), 200);
    assert_eq!(ask("silent", None), 200);
    assert_eq!(ask("silent", None), 429);
    assert_eq!(
        (charges(), left("silent"), left("acme")),
        (2, json!(0), json!(180)),
        "a denied request charges nothing"
    );
}
