//! Rules by xDS: the real binary, and a server of the discovery service in this process.

mod ai_gateway;
mod changes;
mod commands;
pub mod envoy_gateway;
mod exceptions;
mod protocol;
mod refused;
mod resource;
mod server_away;
mod start;
pub mod tls;
mod upgrades;

use serde_json::json;

use crate::support::ads::AdsServer;
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use resource::resource;

/// A service whose rules come from `server`. Attempts are close together.
fn plan(server: &AdsServer) -> Plan {
    Plan::default()
        .set("rules.xds.address", server.address())
        .set("rules.xds.backoff.initial", "20ms")
        .set("rules.xds.backoff.max", "200ms")
}

/// A resource with one rule: domain and name are the same.
pub fn one_rule(domain: &str, requests_per_unit: u32) -> envoy_types::pb::google::protobuf::Any {
    let limit = json!({"unit": "YEAR", "requests_per_unit": requests_per_unit});
    resource(&json!({
        "name": domain, "domain": domain, "descriptors": [{"key": "user", "rate_limit": limit}]
    }))
}

/// `/rules` of the admin port.
fn rules_page(service: &Ratelimitd) -> serde_json::Value {
    let body = http::get(service.admin_port(), "/rules", &[]).expect("an answer").body;
    serde_json::from_str(&body).expect("JSON")
}

/// `/rlconfig` of the admin port: `path: unit=UNIT n=NUMBER`, sorted.
fn limits(service: &Ratelimitd) -> Vec<String> {
    let body = http::get(service.admin_port(), "/rlconfig", &[]).expect("an answer").body;
    let short = |line: &str| {
        let line = line.split(", shadow_mode").next().unwrap_or_default();
        line.replace("requests_per_unit=", "n=")
    };
    let mut limits: Vec<String> = body.lines().map(short).collect();
    limits.sort();
    limits
}

/// The value of a series of `/metrics`.
fn metric(service: &Ratelimitd, series: &str) -> f64 {
    let text = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{series} ")));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().expect("a number")
}
