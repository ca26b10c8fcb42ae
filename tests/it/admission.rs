//! Exactly the limit is admitted, whoever asks and however many ask at once.

use envoy_types::pb::google::protobuf::UInt64Value;
use futures_util::future::join_all;

use crate::support::cluster::{Cluster, run};
use crate::support::grpc::{Code, RateLimitDescriptor, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;

const LIMIT: usize = 100;
const CALLS: usize = 2_000;
const CONNECTIONS: usize = 8;

/// Every algorithm, with a period so long that nothing comes back while the test runs: 100 a year is one in 3.65 days.
const RULES: &str = "
domain: crowd
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

/// Calls at once for one descriptor. How many were admitted.
async fn crowd(services: &[Ratelimitd], key: &str) -> usize {
    crowd_of(services, &[descriptor(&[(key, "everyone")])]).await
}

/// Calls at once, dealt out to several connections to each of the processes. How many were admitted.
async fn crowd_of(services: &[Ratelimitd], descriptors: &[RateLimitDescriptor]) -> usize {
    let mut connections = Vec::new();
    for n in 0..CONNECTIONS {
        connections.push(Rls::connect(services[n % services.len()].grpc_port()).await);
    }
    let calls = (0..CALLS).map(|n| {
        let mut rls = connections[n % CONNECTIONS].clone();
        let sent = request("crowd", descriptors.to_vec());
        async move { rls.send(sent).await.expect("an answer").overall_code() }
    });
    join_all(calls).await.into_iter().filter(|code| *code == Code::Ok).count()
}

async fn exactly_the_limit(services: &[Ratelimitd]) {
    for key in KEYS {
        assert_eq!(crowd(services, key).await, LIMIT, "{key}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_on_memory_admits_exactly_the_limit() {
    exactly_the_limit(&[Ratelimitd::start(RULES)]).await;
}

/// Patient, because all the calls of a crowd come at once and a debug build takes its time.
fn on(redis: &Redis) -> Ratelimitd {
    Plan::new(RULES).redis(&redis.url()).set("store.redis.timeout", "5s").start()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_on_redis_admits_exactly_the_limit() {
    let redis = Redis::start();
    exactly_the_limit(&[on(&redis)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_one_redis_admit_exactly_the_limit() {
    let redis = Redis::start();
    exactly_the_limit(&[on(&redis), on(&redis)]).await;
}

/// As operators have it by default: batches, deny cache, breaker.
fn on_cluster(cluster: &Cluster) -> Ratelimitd {
    let plan = Plan::new(RULES).redis(&cluster.urls().join(",")).set("store.redis.topology", "cluster");
    plan.set("store.redis.timeout", "5s").start()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_one_cluster_admit_exactly_the_limit() {
    let cluster = Cluster::start();
    let services = [on_cluster(&cluster), on_cluster(&cluster)];
    exactly_the_limit(&services).await;
    let sizes: Vec<u64> = cluster.nodes().iter().map(|node| run(node, &["DBSIZE"])).collect();
    assert!(sizes.iter().all(|size| *size > 0), "counters are on every node: {sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_reserved_in_another_slot_is_given_back() {
    let cluster = Cluster::start();
    let services = [on_cluster(&cluster), on_cluster(&cluster)];
    // The tight limit and the wide one are on different nodes.
    let home = |key: &str, value: &str| cluster.home(&format!("{{crowd|{key}={value}}}"));
    let away = (0..).map(|n| format!("w{n}")).find(|value| home("wide", value) != home("gcra", "both"));
    let wide = descriptor(&[("wide", &away.expect("some value is elsewhere"))]);
    let both = [descriptor(&[("gcra", "both")]), wide.clone()];
    assert_eq!(crowd_of(&services, &both).await, LIMIT);
    let peek = RateLimitDescriptor { hits_addend: Some(UInt64Value { value: 0 }), ..wide };
    let mut rls = Rls::connect(services[0].grpc_port()).await;
    let left = rls.send(request("crowd", vec![peek])).await.expect("an answer").statuses[0].limit_remaining;
    assert_eq!(left as usize, 10_000 - LIMIT, "what was held back is given back");
}
