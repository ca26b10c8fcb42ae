//! Processes that share one Redis or one cluster admit exactly the limit, for any number of concurrent calls.

use envoy_types::pb::google::protobuf::UInt64Value;

use crate::service::admission::{LIMIT, RULES, admitted, exactly_the_limit};
use crate::support::grpc::{RateLimitDescriptor, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::redis::cluster::{Cluster, run};

/// The timeout is long because all calls are concurrent and a debug build is slow.
fn start_on(redis: &Redis) -> Ratelimitd {
    Plan::new(RULES).redis(&redis.url()).set("store.redis.timeout", "5s").start()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_process_on_redis_admits_exactly_the_limit() {
    let redis = Redis::start();
    exactly_the_limit(&[start_on(&redis)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_one_redis_admit_exactly_the_limit() {
    let redis = Redis::start();
    exactly_the_limit(&[start_on(&redis), start_on(&redis)]).await;
}

/// With batches, deny cache and breaker, as by default.
fn start_on_cluster(cluster: &Cluster) -> Ratelimitd {
    let plan = Plan::new(RULES).redis(&cluster.urls().join(",")).set("store.redis.topology", "cluster");
    plan.set("store.redis.timeout", "5s").start()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_on_one_cluster_admit_exactly_the_limit() {
    let cluster = Cluster::start();
    let services = [start_on_cluster(&cluster), start_on_cluster(&cluster)];
    exactly_the_limit(&services).await;
    let sizes: Vec<u64> = cluster.nodes().iter().map(|node| run(node, &["DBSIZE"])).collect();
    assert!(sizes.iter().all(|size| *size > 0), "counters are on every node: {sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn units_reserved_in_another_slot_are_returned() {
    let cluster = Cluster::start();
    let services = [start_on_cluster(&cluster), start_on_cluster(&cluster)];
    // The tight limit and the wide one are on different nodes.
    let primary_of = |key: &str, value: &str| cluster.primary_of(&format!("{{concurrent|{key}={value}}}"));
    let value =
        (0..).map(|n| format!("w{n}")).find(|value| primary_of("wide", value) != primary_of("gcra", "both"));
    let wide = descriptor(&[("wide", &value.expect("a value on another node"))]);
    let both = [descriptor(&[("gcra", "both")]), wide.clone()];
    assert_eq!(admitted(&services, &both).await, LIMIT);
    let peek = RateLimitDescriptor { hits_addend: Some(UInt64Value { value: 0 }), ..wide };
    let mut rls = Rls::connect(services[0].grpc_port()).await;
    let left =
        rls.send(request("concurrent", vec![peek])).await.expect("an answer").statuses[0].limit_remaining;
    assert_eq!(left as usize, 10_000 - LIMIT, "the units of denied requests are returned");
}
