//! The store alone while Redis is stopped, hung or slow to start. How soon a caller has its answer is a matter of
//! milliseconds: the unit tests of `store::redis::node` check that in simulated time.

use std::time::Duration;

use ::base::clock::monotonic;
use ::store::breaker::BreakerState;
use ::store::redis::{RedisOptions, RedisStore};
use engine::{Cost, Store, StoreError};
use futures_util::future::join_all;

use crate::redis::{kernels, one_charge, patient_options, store};
use crate::support::redis::Redis;
use crate::support::wait;

/// As operators have it by default.
const DEADLINE: Duration = Duration::from_millis(15);

fn impatient(redis: &Redis) -> RedisOptions {
    RedisOptions { timeout: DEADLINE, ..patient_options(&redis.url()) }
}

/// A decision that is admitted whenever there is one, and how long it took.
async fn decide(store: &RedisStore) -> (Result<(), StoreError>, Duration) {
    let (_, kernel) = kernels(1_000_000)[3];
    let start = monotonic();
    let answer = store.decide(&one_charge(kernel, "outage", Cost::take(1))).await;
    (answer.map(|_| ()), start.elapsed())
}

fn is_away(answer: &Result<(), StoreError>) -> bool {
    answer.as_ref().is_err_and(|error| matches!(error.root(), StoreError::Unreachable(_)))
}

/// Decides under load until it succeeds; how long that took.
async fn recovery(store: &RedisStore) -> Duration {
    let start = monotonic();
    loop {
        let answers = join_all((0..50).map(|_| decide(store))).await;
        if answers.iter().any(|(answer, _)| answer.is_ok()) {
            return start.elapsed();
        }
        assert!(start.elapsed() < wait::PATIENCE, "still no answer: {:?}", answers[0]);
        // Refusals cost no wait, and the store's tasks need their turn.
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn starting_without_redis_is_no_error_and_its_arrival_is_noticed() {
    let mut redis = Redis::start();
    redis.stop();
    let store = store(&impatient(&redis));
    for _ in 0..3 {
        let (answer, _) = decide(&store).await;
        assert!(is_away(&answer), "{answer:?}");
    }
    assert!(store.probe().await.is_err());
    redis.restart();
    println!("recovered {:?} after Redis first appeared", recovery(&store).await);
    assert_eq!(store.probe().await, Ok(()));
}

#[tokio::test]
async fn a_stopped_redis_costs_callers_little_and_its_return_is_noticed() {
    let mut redis = Redis::start();
    let store = store(&impatient(&redis));
    recovery(&store).await;
    for round in 0..3 {
        redis.stop();
        // The first decisions learn of it the hard way; they must not wait beyond their deadline for it.
        let answers = join_all((0..200).map(|_| decide(&store))).await;
        for (answer, _) in answers {
            assert!(answer.is_err(), "Redis is unavailable");
        }
        for _ in 0..5 {
            let (answer, _) = decide(&store).await;
            assert!(is_away(&answer), "{answer:?}");
        }
        let (answer, took) = decide(&store).await;
        assert!(matches!(answer, Err(StoreError::Open(_))), "{answer:?}");
        assert_ne!(store.nodes()[0].1, BreakerState::Closed);
        println!("round {round}: refused in {took:?}");
        redis.restart();
        println!("round {round}: recovered in {:?}", recovery(&store).await);
        assert_eq!(store.nodes()[0].1, BreakerState::Closed);
    }
}

#[tokio::test]
async fn a_hung_redis_is_not_waited_for_beyond_the_deadline() {
    let redis = Redis::start();
    let store = store(&impatient(&redis));
    recovery(&store).await;
    for round in 0..3 {
        redis.signal("STOP");
        for _ in 0..40 {
            for (answer, _) in join_all((0..50).map(|_| decide(&store))).await {
                let late = answer.as_ref().is_err_and(|error| *error.root() == StoreError::Timeout);
                assert!(late, "{answer:?}");
            }
        }
        redis.signal("CONT");
        println!("round {round}: recovered in {:?}", recovery(&store).await);
    }
}

#[tokio::test]
async fn what_the_queue_does_not_hold_is_refused_at_once() {
    let redis = Redis::start();
    let options = RedisOptions { connections: 1, max_batch: 3, max_queue: 5, ..impatient(&redis) };
    let store = store(&options);
    recovery(&store).await;
    redis.signal("STOP");
    let answers = join_all((0..50).map(|_| decide(&store))).await;
    redis.signal("CONT");
    let overloaded = answers.iter().filter(|(answer, _)| matches!(answer, Err(StoreError::Overloaded)));
    // All fifty are asked for before the batcher's first turn.
    assert_eq!(overloaded.count(), 45);
    let late = answers.iter().filter(|(answer, _)| matches!(answer, Err(StoreError::Timeout)));
    assert_eq!(late.count(), 5);
}
