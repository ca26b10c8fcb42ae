//! Bursts that take Redis many batches, with a deadline that a slow machine keeps. How many requests of an overload are
//! decided in time is a matter of milliseconds: the unit tests of `store::redis::node` check that in simulated time.

use std::sync::Arc;
use std::time::Duration;

use ::store::observer::NoopObserver;
use ::store::redis::{RedisOptions, RedisStore};
use engine::algorithm::{FixedWindow, Kernel};
use engine::{Charge, Charges, Charging, Cost, FailurePolicy, Role, Store};
use futures_util::future::join_all;

use crate::support::redis::proxy::Proxy;
use crate::support::redis::{Redis, parsed};
use crate::support::wait;

const BATCH: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(5);

/// In a slow spell a batch takes half a second: ten batches are decided within the deadline.
const SLOW_ONE_WAY: Duration = Duration::from_millis(250);
/// More requests than ten batches hold.
const MORE_THAN_SLOW_REDIS_DECIDES: usize = 300;

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

/// A store that calls Redis through the proxy with one connection, in batches of eight.
async fn store_behind(proxy: &Proxy) -> RedisStore {
    let options = RedisOptions {
        urls: parsed([format!("redis://{}/", proxy.address())]),
        key_prefix: "it:".to_owned(),
        timeout: TIMEOUT,
        connections: 1,
        max_batch: BATCH,
        ..RedisOptions::default()
    };
    let store = RedisStore::new(&options, Arc::new(NoopObserver)).expect("good options");
    store.probe().await.expect("Redis is there");
    store
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
    let store = store_behind(&proxy).await;
    decides_bursts(&store, "at rest").await;
    proxy.delay(SLOW_ONE_WAY, SLOW_ONE_WAY);
    let charges = charges();
    let answers = join_all((0..MORE_THAN_SLOW_REDIS_DECIDES).map(|_| store.decide(&charges))).await;
    assert!(answers.iter().any(Result::is_err), "more requests than Redis decides in time");
    proxy.restore();
    store.probe().await.expect("Redis is fast again");
    decides_bursts(&store, "after the slow spell").await;
    proxy.refuse();
    proxy.cut();
    for _ in 0..10 {
        store.decide(&charges).await.expect_err("Redis is away");
    }
    proxy.restore();
    let back = wait::until_async(wait::PATIENCE, async || store.probe().await.ok()).await;
    back.expect("Redis decides again");
    decides_bursts(&store, "after the outage").await;
}
