//! The Envoy of docs/rules.md in front of a third party: it reports the `Retry-After` of a 429 by itself.

use super::pages::blocks_of;
use crate::support::envoy::{Bootstrap, Envoy, per_filter_route};
use crate::support::http::{self, Response};
use crate::support::process::Ratelimitd;
use crate::support::third_party::{RETRY_AFTER, ThirdParty};
use crate::support::wait;

const RULES: &str = "
domain: envoy
descriptors:
  - key: api
    rate_limit: { unit: year, requests_per_unit: 5, algorithm: fixed_window, feedback: { max: 10m } }
";

/// The route and the filter of the page, in front of this third party.
fn start(service: &Ratelimitd, third_party: &ThirdParty) -> Envoy {
    let blocks = blocks_of("docs/rules.md", "Penalty and feedback");
    let [filters, route] = &blocks[..] else { panic!("{} blocks", blocks.len()) };
    let bootstrap = Bootstrap::new(service.grpc_port()).fail_closed().upstream_port(third_party.port);
    let bootstrap = bootstrap.filter_before(filters[0].clone());
    Envoy::start(&bootstrap.route(per_filter_route("/", route["rate_limits"].clone())))
}

fn call(envoy: &Envoy, api: &str) -> Response {
    envoy.get_with("/", &[("x-api", api)])
}

/// The reported pauses, whatever their result.
fn reports(service: &Ratelimitd) -> u64 {
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let counts = metrics.lines().filter(|line| line.starts_with("ratelimitd_pauses_total{"));
    counts.map(|line| line.rsplit_once(' ').expect("a value").1.parse::<u64>().expect("a number")).sum()
}

#[test]
fn envoy_reports_a_429_of_the_third_party_and_the_next_request_does_not_reach_it() {
    let service = Ratelimitd::start(RULES);
    let third_party = ThirdParty::start(1, 1);
    let envoy = start(&service, &third_party);
    assert_eq!(call(&envoy, "stripe").status, 200);
    let limited = call(&envoy, "stripe");
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("3")), "the third party's");
    wait::expect("the report", || reports(&service) == 1);

    let denied = call(&envoy, "stripe");
    assert_eq!((denied.status, denied.header("x-envoy-ratelimited")), (429, Some("true")), "{denied:?}");
    assert_eq!(third_party.calls().len(), 2);
    assert_eq!(call(&envoy, "other").header("x-envoy-ratelimited"), None, "another value reaches it");

    wait::expect("the end of the pause", || call(&envoy, "stripe").status == 200);
    let calls = third_party.calls();
    assert_eq!(calls.iter().map(|call| call.status).collect::<Vec<_>>(), [200, 429, 429, 200]);
    let [_, first, _, last] = &calls[..] else { panic!("{calls:?}") };
    assert!(last.at - first.at >= RETRY_AFTER, "{calls:?}");
}

#[test]
fn a_denial_of_the_limit_is_no_report() {
    let service = Ratelimitd::start(RULES);
    let third_party = ThirdParty::start(1, usize::MAX);
    let envoy = start(&service, &third_party);
    for _ in 0..5 {
        assert_eq!(call(&envoy, "stripe").status, 200);
    }
    for _ in 0..2 {
        assert_eq!(call(&envoy, "stripe").status, 429);
    }
    assert_eq!(call(&envoy, "other").status, 200);
    assert_eq!(third_party.calls().len(), 6);
    assert_eq!(
        envoy.stat("cluster.ratelimit.upstream_rq_total"),
        8,
        "a call for each request, and no report"
    );
    assert_eq!(reports(&service), 0);
}
