//! Exactly the limit is admitted, for any number of concurrent calls.

use futures_util::future::join_all;

use crate::support::grpc::{Code, RateLimitDescriptor, Rls, descriptor, request};
use crate::support::process::Ratelimitd;

pub(crate) const LIMIT: usize = 100;
const CALLS: usize = 2_000;
const CONNECTIONS: usize = 8;

/// Every algorithm. The period is long enough that no unit is freed during the test: 100 a year is one in 3.65 days.
pub(crate) const RULES: &str = "
domain: concurrent
descriptors:
  - { key: default, rate_limit: { unit: year, requests_per_unit: 100 } }
  - { key: fixed_window, rate_limit: { unit: year, requests_per_unit: 100, algorithm: fixed_window } }
  - { key: sliding_window, rate_limit: { unit: year, requests_per_unit: 100, algorithm: sliding_window } }
  - { key: sliding_log, rate_limit: { unit: year, requests_per_unit: 100, algorithm: sliding_log } }
  - { key: gcra, rate_limit: { unit: year, requests_per_unit: 100, algorithm: gcra } }
  - { key: token_bucket, rate_limit: { unit: year, requests_per_unit: 100, algorithm: token_bucket } }
  - { key: interval, rate_limit: { unit: year, requests_per_unit: 100, algorithm: token_bucket, refill: interval } }
  - { key: leaky_bucket, rate_limit: { unit: year, requests_per_unit: 100, algorithm: leaky_bucket } }
  - { key: queue, rate_limit: { unit: year, requests_per_unit: 100, algorithm: leaky_bucket, mode: queue } }
  - { key: wide, rate_limit: { unit: year, requests_per_unit: 10000, algorithm: sliding_window } }
";

const KEYS: [&str; 9] = [
    "default",
    "fixed_window",
    "sliding_window",
    "sliding_log",
    "gcra",
    "token_bucket",
    "interval",
    "leaky_bucket",
    "queue",
];

/// Sends all calls at once for one descriptor. Returns how many were admitted.
async fn admitted_by_key(services: &[Ratelimitd], key: &str) -> usize {
    admitted(services, &[descriptor(&[(key, "all")])]).await
}

/// Sends all calls at once over several connections to each process. Returns how many were admitted.
pub(crate) async fn admitted(services: &[Ratelimitd], descriptors: &[RateLimitDescriptor]) -> usize {
    let mut connections = Vec::new();
    for n in 0..CONNECTIONS {
        connections.push(Rls::connect(services[n % services.len()].grpc_port()).await);
    }
    let calls = (0..CALLS).map(|n| {
        let mut rls = connections[n % CONNECTIONS].clone();
        let message = request("concurrent", descriptors.to_vec());
        async move { rls.send(message).await.expect("an answer").overall_code() }
    });
    join_all(calls).await.into_iter().filter(|code| *code == Code::Ok).count()
}

pub(crate) async fn exactly_the_limit(services: &[Ratelimitd]) {
    for key in KEYS {
        assert_eq!(admitted_by_key(services, key).await, LIMIT, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_on_memory_admits_exactly_the_limit() {
    exactly_the_limit(&[Ratelimitd::start(RULES)]).await;
}
