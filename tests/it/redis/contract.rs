//! The contract of all stores, checked on Redis: the script uses the time of the test clock instead of the server's
//! `TIME`.

use std::sync::Arc;

use ::store::clock::{Clock, ManualClock};
use ::store::redis::{ReplayClient, TimedBatch};
use engine::{Charges, Outcomes, Store, StoreError};
use tokio::sync::Mutex;

use super::patient_options;
use crate::store::contract::contract;
use crate::support::redis::Redis;

pub(super) struct TimedRedis {
    client: Mutex<ReplayClient>,
    clock: Arc<ManualClock>,
}

impl TimedRedis {
    pub(super) fn new(client: ReplayClient, clock: &Arc<ManualClock>) -> Self {
        Self { client: Mutex::new(client), clock: Arc::clone(clock) }
    }
}

impl Store for TimedRedis {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let batch = TimedBatch { now_us: self.clock.now_us(), requests: &[charges] };
        let mut decided = self.client.lock().await.decide(&[batch]).await?;
        Ok(decided.remove(0).remove(0))
    }
}

#[tokio::test]
async fn redis_keeps_the_contract() {
    let redis = Redis::start();
    let client = ReplayClient::connect(&patient_options(&redis.url())).await.expect("Redis answers");
    let clock = Arc::new(ManualClock::default());
    contract(TimedRedis::new(client, &clock), clock).await;
}
