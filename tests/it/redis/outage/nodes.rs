//! A cluster node without a replica fails: its keys are answered by policy, all other keys exactly.

use tonic::Code as Grpc;

use super::{Fixture, RULES};
use crate::support::grpc::Code;
use crate::support::process::Plan;
use crate::support::redis::cluster::{Cluster, run};
use crate::support::{http, wait};

/// A value of the key `deny` whose counter is on that node.
fn value_on(cluster: &Cluster, node: usize) -> String {
    let mut values = (0..).map(|n: u32| n.to_string());
    values
        .find(|value| cluster.primary_of(&format!("{{d|deny={value}}}")) == node)
        .expect("some value is there")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_a_replica_that_is_killed() {
    let mut cluster = Cluster::start();
    let plan = Plan::new(RULES).redis(&cluster.urls().join(",")).set("store.redis.topology", "cluster");
    let mut fixture = Fixture::start_with(plan).await;
    // The one that decides what the fixture asks.
    let dead = cluster.primary_of("{d|error=x}");
    let [on_dead, other, another] = [0, 1, 2].map(|n| value_on(&cluster, (dead + n) % 3));
    cluster.stop(dead);
    fixture.first_failure().await;
    fixture.breaker_opens().await;
    for _ in 0..20 {
        assert_eq!(fixture.ask().await, Err(Grpc::Unavailable));
        assert_eq!(fixture.rls.send_one("d", &[("deny", &on_dead)]).await.0, Code::OverLimit);
        for value in [&other, &another] {
            assert_eq!(fixture.rls.send_one("d", &[("deny", value)]).await.0, Code::Ok, "the others decide");
        }
    }
    let ready = http::get(fixture.service.http_port(), "/readyz", &[]).expect("an answer");
    assert_eq!(ready.status, 200, "{}", ready.body);
    assert_eq!(fixture.times_logged("Redis is available again"), 0, "not all of it does");

    cluster.restart(dead);
    let serves = |key: &str| cluster.nodes()[dead].run::<()>(&["SET", key, "1"]).is_ok();
    wait::expect("the node serves its slots", || serves("{d|error=x}"));
    (fixture.admitted, fixture.unanswered) = (0, 0);
    fixture.service_recovers().await;
    assert_eq!(fixture.rls.send_one("d", &[("deny", &on_dead)]).await.0, Code::Ok);
    fixture.nothing_was_charged_but_what_was_admitted().await;
    assert!(run::<String>(&cluster.nodes()[dead], &["INFO", "commandstats"]).contains("cmdstat_evalsha"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_memory_is_probed_with_a_key_of_its_own() {
    let cluster = Cluster::start();
    for full in 0..3 {
        let plan = Plan::new(RULES).redis(&cluster.urls().join(",")).set("store.redis.topology", "cluster");
        let mut fixture = Fixture::start_with(plan).await;
        let (node, value) = (&cluster.nodes()[full], value_on(&cluster, full));
        run::<()>(node, &["CONFIG", "SET", "maxmemory", "1"]);
        let opened = "ratelimitd_redis_breaker_transitions_total{state=\"open\"}";
        wait::until_async(wait::PATIENCE, async || {
            fixture.rls.send_one("d", &[("deny", &value)]).await;
            (fixture.metric(opened) > 0).then_some(())
        })
        .await
        .expect("the breaker opens");
        // A probe that is answered would close it, and the next calls open it again.
        let probed = "ratelimitd_redis_breaker_transitions_total{state=\"half_open\"}";
        wait::expect("some probes", || fixture.metric(probed) >= 5);
        assert_eq!(fixture.rls.send_one("d", &[("deny", &value)]).await.0, Code::OverLimit);
        assert_eq!(fixture.metric("ratelimitd_redis_breaker_transitions_total{state=\"closed\"}"), 0);
        run::<()>(node, &["CONFIG", "SET", "maxmemory", "0"]);
        wait::expect("a closed breaker", || fixture.metric("ratelimitd_redis_breakers_open") == 0);
        assert_eq!(fixture.rls.send_one("d", &[("deny", &value)]).await.0, Code::Ok);
    }
}
