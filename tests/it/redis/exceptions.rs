//! The known answers of exceptions and tiers, on Redis and on each primary of a cluster.

use super::contract::TimedRedis;
use crate::store::exceptions::{known_answers, with_deny_cache};
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;

#[tokio::test]
async fn redis_gives_the_known_answers() {
    let redis = Redis::start();
    let (store, clock) = TimedRedis::connect(&redis.url()).await;
    known_answers(store, clock, "llm").await;
}

#[tokio::test]
async fn a_deny_cache_in_front_of_redis_gives_the_known_answers() {
    let redis = Redis::start();
    let (store, clock) = TimedRedis::connect(&redis.url()).await;
    known_answers(with_deny_cache(store, &clock), clock, "llm").await;
}

#[tokio::test]
async fn each_primary_of_a_cluster_gives_the_known_answers() {
    let cluster = Cluster::start();
    for (primary, url) in cluster.urls().iter().enumerate() {
        let is_here = |domain: &String| cluster.primary_of(&format!("{{{domain}}}")) == primary;
        let domain = (0..).map(|n: u32| format!("llm{n}")).find(is_here).expect("a domain of this primary");
        let (store, clock) = TimedRedis::connect(url).await;
        known_answers(store, clock, &domain).await;
    }
}
