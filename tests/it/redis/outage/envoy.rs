//! A real Envoy in front of the service, while Redis is down.

use serde_json::json;

use crate::support::envoy::{Bootstrap, Envoy, route};
use crate::support::http;
use crate::support::process::Plan;
use crate::support::redis::Redis;

/// Requests that Envoy admitted without a decision.
const FAILED_OPEN: &str = "cluster.upstream.ratelimit.failure_mode_allowed";

const RULES: &str = "
domain: envoy
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 3, algorithm: gcra, on_store_failure: local } }
  - { key: path, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: gcra } }
";

#[test]
fn a_local_limit_denies_beside_a_limit_with_error() {
    let mut redis = Redis::start();
    let service = Plan::new(RULES).redis(&redis.url()).start();
    let header = |name: &str, key: &str| json!({"actions": [{"request_headers": {"header_name": name, "descriptor_key": key}}]});
    let both = json!([header("x-user", "user"), header(":path", "path")]);
    let envoy = Envoy::start(&Bootstrap::new(service.grpc_port()).route(route("/", both)));
    redis.stop();
    let codes = [(); 10].map(|()| envoy.get_with("/", &[("x-user", "ann")]).status);
    assert_eq!(codes, [200, 200, 200, 429, 429, 429, 429, 429, 429, 429], "{}", service.log());
    assert_eq!(envoy.stat(FAILED_OPEN), 3, "calls that failed, of which the local limit counted each");

    // The metrics show that Redis did not decide any of the ten.
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let value = |series: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in {metrics}")).parse::<u64>().expect("a whole number")
    };
    let by_policy = |policy: &str, rule: &str| {
        let labels = format!("domain=\"envoy\",policy=\"{policy}\",rule=\"envoy.{rule}\"");
        value(&format!("ratelimitd_policy_decisions_total{{{labels}}}"))
    };
    assert_eq!((by_policy("error", "path"), by_policy("local", "user")), (10, 7));
    let kinds = ["unreachable", "timeout", "breaker_open"];
    let errors = kinds.iter().filter_map(|kind| {
        let series = format!("ratelimitd_store_errors_total{{kind=\"{kind}\",store=\"redis\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u64>().ok())
    });
    assert_eq!(errors.sum::<u64>(), 10, "{metrics}");
}
