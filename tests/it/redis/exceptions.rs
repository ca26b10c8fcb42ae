//! The known answers of exceptions and tiers, on Redis and on each primary of a cluster.

use std::sync::Arc;

use ::base::clock::{Clock, ManualClock};
use ::store::redis::{ReplayClient, TimedBatch};
use engine::{Charges, Outcomes, Store, StoreError};
use tokio::sync::Mutex;

use super::patient_options;
use crate::store::exceptions::{known_answers, with_deny_cache};
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;

/// The script at the time of the test clock, in place of the server's `TIME`.
struct TimedRedis {
    client: Mutex<ReplayClient>,
    clock: Arc<ManualClock>,
}

impl Store for TimedRedis {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let batch = TimedBatch { now_us: self.clock.now_us(), requests: &[charges] };
        let mut decided = self.client.lock().await.decide(&[batch]).await?;
        Ok(decided.remove(0).remove(0))
    }
}

impl TimedRedis {
    /// A store on this server, and its clock.
    async fn connect(url: &str) -> (Self, Arc<ManualClock>) {
        let client = ReplayClient::connect(&patient_options(url)).await.expect("Redis answers");
        let clock = Arc::new(ManualClock::default());
        (Self { client: Mutex::new(client), clock: Arc::clone(&clock) }, clock)
    }
}

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
