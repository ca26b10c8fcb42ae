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

#[tokio::test]
async fn what_redis_decides_reaches_callers_in_time_however_many_ask() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let options = RedisOptions {
        urls: parsed([format!("redis://{}/", proxy.address())]),
        key_prefix: "it:".to_owned(),
        timeout: TIMEOUT,
        connections: 1,
        max_batch: BATCH,
        ..RedisOptions::default()
    };
    let store = RedisStore::new(&options, Arc::new(NoopObserver)).expect("good options");
    store.ping().await.expect("Redis is there");
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
