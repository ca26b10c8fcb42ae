//! The console's data on the admin port: `/console/state`, `/console/events`, and the actions on a row.

mod access;
mod actions;
mod blocked;
pub mod browser;
mod data;
mod events;
mod explain;
mod own_token;
mod schema;
mod top;

use serde_json::{Value, json};

use crate::support::http::{self, Response, connect, exchange};
use crate::support::process::Ratelimitd;
use crate::support::wait;

/// Two limits that deny after one request, and a public value.
pub const RULES: &str = "
domain: edge
descriptors:
  - key: tenant
    descriptors:
      - { key: path, value: /search, rate_limit: { unit: day, requests_per_unit: 5, algorithm: gcra } }
  - { key: user, rate_limit: { name: per-user, unit: day, requests_per_unit: 1, algorithm: fixed_window } }
";

/// Sends a request with one descriptor to `/json`. Returns whether it is denied.
pub fn ask(service: &Ratelimitd, domain: &str, entries: &[(&str, &str)]) -> bool {
    let entries: Vec<_> = entries.iter().map(|(key, value)| json!({"key": key, "value": value})).collect();
    let body = json!({"domain": domain, "descriptors": [{"entries": entries}]}).to_string();
    let stream = connect(service.http_port()).expect("a connection");
    let lines = ["POST /json HTTP/1.1", "host: localhost"];
    exchange(stream, &lines, &body).expect("an answer").status == 429
}

/// The state of the console.
pub fn state(service: &Ratelimitd) -> Value {
    let answer = http::get(service.admin_port(), "/console/state", &[]).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.body);
    serde_json::from_str(&answer.body).expect("JSON")
}

/// Waits for a state that `is_there` accepts.
pub fn state_with(service: &Ratelimitd, what: &str, is_there: impl Fn(&Value) -> bool) -> Value {
    let found = wait::until(wait::PATIENCE, || Some(state(service)).filter(&is_there));
    found.unwrap_or_else(|| panic!("no state with {what}: {}", state(service)))
}

/// The sum of a series of the state.
pub fn sum(state: &Value, series: &str) -> u64 {
    state["series"][series].as_array().expect("a series").iter().filter_map(Value::as_u64).sum()
}

/// Posts to the admin port, with a token if it is not empty.
pub fn post(service: &Ratelimitd, path: &str, body: &Value, token: &str) -> Response {
    let mut lines = vec![
        format!("POST {path} HTTP/1.1"),
        "host: localhost".to_owned(),
        "content-type: application/json".to_owned(),
    ];
    if !token.is_empty() {
        lines.push(format!("authorization: Bearer {token}"));
    }
    exchange(connect(service.admin_port()).expect("a connection"), &lines, &body.to_string())
        .expect("an answer")
}

/// The row of a denied key whose entries are these.
pub fn row<'s>(state: &'s Value, entries: &Value) -> Option<&'s Value> {
    state["keys"].as_array().expect("a list").iter().find(|key| key["entries"] == *entries)
}
