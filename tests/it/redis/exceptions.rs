//! The known answers of exceptions and tiers, on Redis.

use std::sync::Arc;

use ::store::clock::ManualClock;
use ::store::redis::ReplayClient;

use super::contract::TimedRedis;
use super::patient_options;
use crate::store::exceptions::{known_answers, with_deny_cache};
use crate::support::redis::Redis;

async fn timed(redis: &Redis) -> (TimedRedis, Arc<ManualClock>) {
    let client = ReplayClient::connect(&patient_options(&redis.url())).await.expect("Redis answers");
    let clock = Arc::new(ManualClock::default());
    (TimedRedis::new(client, &clock), clock)
}

#[tokio::test]
async fn redis_gives_the_known_answers() {
    let redis = Redis::start();
    let (store, clock) = timed(&redis).await;
    known_answers(store, clock).await;
}

#[tokio::test]
async fn a_deny_cache_in_front_of_redis_gives_the_known_answers() {
    let redis = Redis::start();
    let (store, clock) = timed(&redis).await;
    known_answers(with_deny_cache(store, &clock), clock).await;
}
