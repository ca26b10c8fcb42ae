//! A denial that the store decided before units were given back, and that arrives after.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::base::clock::{Clock, ManualClock};
use ::store::deny_cache::{DenyCache, DenyCacheOptions, DenyCached};
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{Charges, Cost, Outcomes, Store, StoreError, Verdict};
use futures_util::FutureExt;
use tokio::sync::Notify;

use super::deny_cache::one;

/// Decides at once. While it is held, it answers only when it is released.
struct HeldStore {
    memory: MemoryStore<Arc<ManualClock>>,
    is_held: AtomicBool,
    released: Notify,
}

impl Store for HeldStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let outcomes = self.memory.decide(charges).await;
        if self.is_held.load(Ordering::Relaxed) {
            self.released.notified().await;
        }
        outcomes
    }
}

struct Fixture {
    layered: DenyCached<Arc<HeldStore>, Arc<ManualClock>>,
    below: Arc<HeldStore>,
    cache: Arc<DenyCache>,
    clock: Arc<ManualClock>,
}

impl Fixture {
    /// The limit of one unit per second is used up.
    fn start() -> Self {
        let clock = Arc::new(ManualClock::at(1_700_000_040_000_000));
        let memory = MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock));
        let below = HeldStore { memory, is_held: AtomicBool::new(false), released: Notify::new() };
        let below = Arc::new(below);
        let cache = Arc::new(DenyCache::new(DenyCacheOptions {
            max_age: Duration::from_millis(500),
            max_keys: 10,
            store_reserves: false,
        }));
        let layered = DenyCached::new(Arc::clone(&below), Some((Arc::clone(&cache), Arc::clone(&clock))));
        let fixture = Self { layered, below, cache, clock };
        assert_eq!(fixture.verdict(Cost::take(1)), Verdict::Fits);
        fixture
    }

    fn verdict(&self, cost: Cost) -> Verdict {
        self.clock.set(self.clock.now_us() + 1);
        let answer = self.layered.decide(&one(cost)).now_or_never().expect("an answer at once");
        answer.expect("memory always answers").by_charge[0].verdict
    }

    /// A denial is decided, then units are given back, then the denial arrives.
    fn deny_late(&self, give_back: impl FnOnce()) {
        let hit = one(Cost::take(1));
        let mut late = pin!(self.layered.decide(&hit));
        self.below.is_held.store(true, Ordering::Relaxed);
        assert!(late.as_mut().now_or_never().is_none(), "decided, not received");
        self.below.is_held.store(false, Ordering::Relaxed);
        self.clock.set(self.clock.now_us() + 1);
        give_back();
        self.clock.set(self.clock.now_us() + 1);
        self.below.released.notify_one();
        let outcomes = late.now_or_never().expect("released").expect("memory always answers");
        assert_eq!(outcomes.by_charge[0].verdict, Verdict::Over);
    }
}

#[test]
fn a_denial_from_before_a_refund_is_not_repeated_after_it() {
    let fixture = Fixture::start();
    fixture.deny_late(|| assert_eq!(fixture.verdict(Cost::refund(1)), Verdict::Fits));
    assert_eq!(fixture.verdict(Cost::take(1)), Verdict::Fits, "the refunded unit");
    assert_eq!(fixture.verdict(Cost::take(1)), Verdict::Over);
}

#[test]
fn a_denial_from_before_a_reset_is_not_repeated_after_it() {
    let fixture = Fixture::start();
    let hit = one(Cost::take(1));
    fixture.deny_late(|| {
        let now_us = fixture.clock.now_us();
        let emptied = fixture.below.memory.decide_at(&one(Cost::refund(1)), now_us);
        assert!(!emptied.is_over(0));
        hit.keys().for_each(|key| fixture.cache.forget(key, now_us));
    });
    assert_eq!(fixture.verdict(Cost::take(1)), Verdict::Fits, "the counter is unused");
}

#[test]
fn a_refund_whose_caller_gives_up_ends_a_denial() {
    let fixture = Fixture::start();
    assert_eq!(fixture.verdict(Cost::take(1)), Verdict::Over);
    fixture.below.is_held.store(true, Ordering::Relaxed);
    let refund = one(Cost::refund(1));
    assert!(fixture.layered.decide(&refund).now_or_never().is_none(), "the caller does not wait");
    fixture.below.is_held.store(false, Ordering::Relaxed);
    assert_eq!(fixture.verdict(Cost::take(1)), Verdict::Fits, "the refunded unit");
}
