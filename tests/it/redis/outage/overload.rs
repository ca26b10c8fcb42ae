//! More calls than Redis can decide: its decisions reach callers in time, and the surplus is rejected at once.
//!
//! Redis is made slow by a proxy, which bounds what a connection carries without taking the cores that the test needs:
//! batches of eight, one on its way at a time, each a few milliseconds. Asserted are counts: of what Redis was made to
//! decide, how much reached a caller in time.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ratelimitd::clock::monotonic;
use ratelimitd::engine::algorithm::{FixedWindow, Kernel};
use ratelimitd::engine::{Charge, Charges, Charging, Cost, FailurePolicy, Role, Store, StoreError};
use ratelimitd::store::redis::{NoopObserver, RedisOptions, RedisStore};

use crate::support::redis::proxy::Proxy;
use crate::support::redis::{Redis, parsed};
use crate::support::wait;

const BATCH: usize = 8;
const TIMEOUT: Duration = Duration::from_millis(150);
/// There and back: a batch takes ten milliseconds, so fifteen are decided within a deadline, of eight each.
const ONE_WAY: Duration = Duration::from_millis(5);

fn charges() -> Charges {
    let mut charges = Charges::default();
    let hit = Charge {
        kernel: Kernel::FixedWindow(FixedWindow::new(1_000_000, 31_536_000_000_000)),
        cost: Cost::take(1),
        charging: Charging::Prepaid,
        role: Role::Enforce,
        on_store_failure: FailurePolicy::Error,
    };
    charges.push(hit, |keys| keys.push_str("overload"));
    charges
}

/// What became of calls.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    decided: u32,
    /// Refused because of overload.
    surplus: u32,
    late: u32,
}

/// Each caller sends `times` requests one after the other: the next one after an answer, or after a refusal when an
/// answer would have come.
async fn call_repeatedly(store: &RedisStore, callers: usize, times: usize) -> Tally {
    let caller = || async {
        let mut tally = Tally::default();
        for _ in 0..times {
            match store.decide(&charges()).await {
                Ok(_) => tally.decided += 1,
                Err(StoreError::Overloaded) => {
                    tally.surplus += 1;
                    tokio::time::timeout(ONE_WAY * 2, std::future::pending::<()>()).await.expect_err("it is");
                }
                Err(StoreError::Timeout) => tally.late += 1,
                Err(other) => panic!("an overload is no outage: {other}"),
            }
        }
        tally
    };
    let tallies = join_all((0..callers).map(|_| caller())).await;
    tallies.iter().fold(Tally::default(), |sum, tally| Tally {
        decided: sum.decided + tally.decided,
        surplus: sum.surplus + tally.surplus,
        late: sum.late + tally.late,
    })
}

async fn charged(redis: &Redis) -> u32 {
    let store = RedisStore::new(
        &RedisOptions {
            urls: parsed([redis.url()]),
            key_prefix: "it:".to_owned(),
            timeout: Duration::from_secs(20),
            ..RedisOptions::default()
        },
        Arc::new(NoopObserver),
    );
    let answer = store.expect("good options").decide(&charges()).await.expect("Redis is there");
    1_000_000 - u32::try_from(answer.by_charge[0].expect("decided").report.remaining).expect("small") - 1
}

/// A store that calls Redis through the proxy with one connection, in batches of eight.
async fn store_behind(proxy: &Proxy, timeout: Duration) -> RedisStore {
    let options = RedisOptions {
        urls: parsed([format!("redis://{}/", proxy.address())]),
        key_prefix: "it:".to_owned(),
        timeout,
        connections: 1,
        max_batch: BATCH,
        ..RedisOptions::default()
    };
    let store = RedisStore::new(&options, Arc::new(NoopObserver)).expect("good options");
    store.probe().await.expect("Redis is there");
    store
}

#[tokio::test]
async fn what_redis_decides_reaches_callers_in_time_however_many_ask() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let store = store_behind(&proxy, TIMEOUT).await;
    proxy.delay(ONE_WAY, ONE_WAY);

    let mut before = charged(&redis).await;
    // Callers that wait for each answer: 60 keep it busy, 120 are what it decides within a deadline, then three
    // times that and ten times.
    for (callers, times) in [(60, 20), (360, 20), (1_200, 20)] {
        let started = monotonic();
        let tally = call_repeatedly(&store, callers, times).await;
        let after = charged(&redis).await;
        let decided_by_redis = after - before;
        before = after;
        println!("{callers} callers: {tally:?}, Redis decided {decided_by_redis}, {:?}", started.elapsed());
        assert!(
            tally.decided * 10 >= decided_by_redis * 9,
            "{callers} callers: of {decided_by_redis} decisions only {} came in time: {tally:?}",
            tally.decided
        );
        let asked = u32::try_from(callers * times).expect("few");
        assert!(tally.late * 10 <= asked, "{callers} callers: the surplus is told at once: {tally:?}");
        if callers > 300 {
            assert!(tally.surplus > 0, "{callers} callers: {tally:?}");
        }
    }
}

/// Sends bursts, each when the one before is decided.
async fn decides_bursts(store: &RedisStore, when: &str) {
    for size in [300, 1_000, 2_000, 300] {
        let charges = charges();
        let answers = join_all((0..size).map(|_| store.decide(&charges))).await;
        let failed: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
        assert_eq!(failed, [], "{when}: a burst of {size}");
    }
}

#[tokio::test]
async fn bursts_are_decided_before_and_after_a_slow_spell_and_an_outage() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let store = store_behind(&proxy, 20 * TIMEOUT).await;
    decides_bursts(&store, "at rest").await;
    // A batch takes 200 ms: about 110 requests are decided within the deadline.
    proxy.delay(20 * ONE_WAY, 20 * ONE_WAY);
    let tally = call_repeatedly(&store, 300, 2).await;
    assert!(tally.surplus > 0, "{tally:?}");
    proxy.restore();
    store.probe().await.expect("Redis is fast again");
    decides_bursts(&store, "after the slow spell").await;
    proxy.refuse();
    proxy.cut();
    for _ in 0..10 {
        store.decide(&charges()).await.expect_err("Redis is away");
    }
    proxy.restore();
    let back = wait::until_async(wait::PATIENCE, async || store.probe().await.ok()).await;
    back.expect("Redis decides again");
    decides_bursts(&store, "after the outage").await;
}
