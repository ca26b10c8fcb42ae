//! What is checked of all stores, checked on Redis: the script uses the time of the test clock instead of the server's
//! `TIME`.

use std::sync::Arc;

use ::store::clock::{Clock, ManualClock};
use ::store::redis::{ReplayClient, TimedBatch};
use engine::{Charges, Outcomes, Store, StoreError};
use tokio::sync::Mutex;

use super::cluster::keys_on_each_primary;
use super::patient_options;
use crate::store::changed_numbers::Subject;
use crate::store::contract::contract;
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;

pub(super) struct TimedRedis {
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
    pub(super) async fn connect(url: &str) -> (Self, Arc<ManualClock>) {
        let client = ReplayClient::connect(&patient_options(url)).await.expect("Redis answers");
        let clock = Arc::new(ManualClock::default());
        (Self { client: Mutex::new(client), clock: Arc::clone(&clock) }, clock)
    }
}

#[tokio::test]
async fn redis_keeps_the_contract() {
    let redis = Redis::start();
    let (store, clock) = TimedRedis::connect(&redis.url()).await;
    contract(store, clock).await;
}

#[tokio::test]
async fn redis_keeps_what_was_used() {
    let redis = Redis::start();
    let (store, clock) = TimedRedis::connect(&redis.url()).await;
    Subject { store, clock, prefix: String::new() }.check().await;
}

#[tokio::test]
async fn a_cluster_keeps_what_was_used() {
    let cluster = Cluster::start();
    let urls = cluster.urls();
    for (url, prefix) in urls.iter().zip(keys_on_each_primary(&cluster)) {
        let (store, clock) = TimedRedis::connect(url).await;
        Subject { store, clock, prefix }.check().await;
    }
}
