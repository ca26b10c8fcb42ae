//! A real Envoy that asks `/check` about each request: the filter `ext_authz` with an HTTP service.

use serde_json::{Value, json};

use super::Checked;
use crate::simulate::Simulation;
use crate::support::envoy::Envoy;
use crate::support::{http, wait};

/// In the names of Envoy's log.
const MAP: &str = "
domain: edge
descriptors:
  - - { key: client, from: x-forwarded-for, take: trusted-hop 1 }
  - - { key: path, from: path, strip: query, template: [\"/users/*\"] }
    - { key: method, from: method }
  - - { key: host, from: authority }
was_limited: code == 429
";

const RULES: &str = "
domain: edge
descriptors:
  - { key: client, rate_limit: { name: per-client, unit: year, requests_per_unit: 9 } }
  - key: path
    value: /users/*
    descriptors: [{ key: method, rate_limit: { name: per-path, unit: year, requests_per_unit: 2 } }]
  - { key: host, value: limited.example, rate_limit: { name: per-host, unit: year, requests_per_unit: 1 } }
";

/// `allowed`: the headers of the client that the call has, beside its method, path and host.
fn configuration(check_port: u16, log: &std::path::Path, allowed: &[&str]) -> Value {
    let any_port = json!({"socket_address": {"address": "127.0.0.1", "port_value": 0}});
    let types = "type.googleapis.com/envoy.extensions";
    let check = json!({"socket_address": {"address": "127.0.0.1", "port_value": check_port}});
    let filter = json!({
        "@type": format!("{types}.filters.http.ext_authz.v3.ExtAuthz"),
        "allowed_headers": {"patterns": allowed.iter().map(|name| json!({"exact": name})).collect::<Vec<_>>()},
        "http_service": {
            "server_uri": {"uri": "http://ratelimitd", "cluster": "ratelimitd", "timeout": "5s"},
            "path_prefix": "/check",
            "authorization_response": {"allowed_client_headers_on_success": {"patterns": [{"prefix": "ratelimit"}]}},
        },
    });
    let manager = json!({
        "@type": format!("{types}.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "ingress",
        "use_remote_address": true,
        "access_log": [{
            "name": "envoy.access_loggers.file",
            "typed_config": {"@type": format!("{types}.access_loggers.file.v3.FileAccessLog"), "path": log},
        }],
        "http_filters": [
            {"name": "envoy.filters.http.ext_authz", "typed_config": filter},
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": format!("{types}.filters.http.router.v3.Router")},
            },
        ],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{
            "match": {"prefix": "/"},
            "direct_response": {"status": 200, "body": {"inline_string": "upstream"}},
        }]}]},
    });
    json!({
        "admin": {"address": any_port},
        "static_resources": {
            "listeners": [{
                "name": "http",
                "address": any_port,
                "filter_chains": [{"filters": [{
                    "name": "envoy.filters.network.http_connection_manager",
                    "typed_config": manager,
                }]}],
            }],
            "clusters": [{
                "name": "ratelimitd",
                "type": "STATIC",
                "load_assignment": {
                    "cluster_name": "ratelimitd",
                    "endpoints": [{"lb_endpoints": [{"endpoint": {"address": check}}]}],
                },
            }],
        },
    })
}

#[test]
fn clients_of_envoy_are_limited_and_its_log_simulates_to_the_same_denials() {
    let checked =
        Checked::start_with(MAP, |plan| plan.rule_file("rules.yaml", RULES).set("response.headers", "ietf"));
    let log = checked.folder.path().join("access.log");
    let envoy = Envoy::start_text(&configuration(checked.port(), &log, &["x-forwarded-for"]).to_string());
    let send = |method: &str, path: &str, more: &str| {
        let lines = [format!("{method} {path} HTTP/1.1"), more.to_owned()];
        http::exchange(http::connect(envoy.port("http")).expect("open"), &lines, "a body").expect("an answer")
    };
    let statuses = |calls: &[(&str, &str, &str)]| -> Vec<u16> {
        calls.iter().map(|(method, path, more)| send(method, path, more).status).collect()
    };
    let post = ("POST", "/users/1?a=b", "host: a");
    assert_eq!(statuses(&[post, post, post]), [200, 200, 429]);
    assert_eq!(statuses(&[("PUT", "/users/2", "host: a")]), [200], "another method");
    let forged = ("POST", "/users/3", "host: a\r\nx-forwarded-uri: /free\r\nx-forwarded-for: 192.0.2.1");
    assert_eq!(statuses(&[forged]), [429], "a client cannot choose its path");
    let host = ("GET", "/", "host: limited.example");
    assert_eq!(statuses(&[host, host]), [200, 429]);
    let admitted = send("GET", "/", "host: b");
    assert!(admitted.header("ratelimit-policy").is_some(), "{admitted:?}");
    let mut denied = 3;
    // The address of the client is used up, whatever it writes into X-Forwarded-For.
    for number in 0..8 {
        let answer = send("GET", "/", &format!("host: b\r\nx-forwarded-for: 192.0.2.{number}"));
        if answer.status == 429 {
            denied += 1;
            assert!(answer.header("retry-after").is_some(), "{answer:?}");
        }
    }
    assert!(denied > 3, "the client has no limit");
    checked.assert_metric(&format!("ratelimitd_requests_total{{result=\"denied\"}} {denied}"));

    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    wait::expect("the log", || text().lines().count() == 16);
    let ended = Simulation::new(RULES).map(MAP).log("access.log", text()).succeed();
    let agreement = &ended.report["method"]["agreement"];
    let counts = ["both_deny", "only_recorded", "only_simulated"].map(|field| agreement[field].as_u64());
    assert_eq!(counts, [Some(denied), Some(0), Some(0)], "{agreement}");
}

/// Envoy takes any status but 200 and 5xx for a denial.
#[test]
fn a_client_over_its_limit_is_not_admitted_by_headers_that_are_refused() {
    let checked = Checked::start_with(MAP, |plan| plan.rule_file("rules.yaml", RULES));
    let log = checked.folder.path().join("access.log");
    let mut configuration = configuration(checked.port(), &log, &["x-forwarded-for", "x-long"]);
    let chain = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
    let filter = format!("{chain}/http_filters/0/typed_config/failure_mode_allow");
    let (parent, key) = filter.rsplit_once('/').expect("a path");
    configuration.pointer_mut(parent).expect("a filter")[key] = true.into();
    let envoy = Envoy::start_text(&configuration.to_string());
    let statuses: Vec<_> = (0..20).map(|_| envoy.get("/").status).collect();
    assert_eq!(statuses.last(), Some(&429));
    for _ in 0..20 {
        for (kib, expected) in [(16, 429), (45, 431), (59, 431)] {
            let long = "x".repeat(kib << 10);
            assert_eq!(envoy.get_with("/", &[("x-long", &long)]).status, expected, "{kib} KiB");
            assert_eq!(envoy.get("/").status, 429);
        }
    }
}

#[test]
fn an_envoy_that_does_not_send_the_address_of_its_client_is_answered() {
    let checked = Checked::start_with(MAP, |plan| plan.rule_file("rules.yaml", RULES));
    let log = checked.folder.path().join("access.log");
    let envoy = Envoy::start_text(&configuration(checked.port(), &log, &["user-agent"]).to_string());
    let statuses: Vec<u16> = (0..3).map(|_| envoy.get("/users/1").status).collect();
    assert_eq!(statuses, [200, 200, 429], "method, path and host are in each call");
}
