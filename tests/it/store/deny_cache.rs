//! Every answer of the deny cache is the answer that the store would give.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ::base::clock::{Clock, ManualClock};
use ::store::deny_cache::{DenyCache, DenyCacheOptions, DenyCached};
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::algorithm::{
    Blocked, CalendarWindow, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow, Slots,
};
use engine::{
    Charge, Charges, Charging, Cost, FailurePolicy, Grant, Outcome, Outcomes, Pacing, Report, Role, Store,
    StoreError, Verdict,
};
use futures_util::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::redis::lua_twin::sequence::with_factor;
use crate::support::properties;

/// A minute boundary.
const T0: u64 = 1_700_000_040_000_000;
const COUNTERS: usize = 4;

type Memory = Arc<MemoryStore<Arc<ManualClock>>>;

/// A store with latency: time passes before and after its decision.
pub(super) struct DelayedStore {
    pub(super) memory: Memory,
    clock: Arc<ManualClock>,
    delay_us: AtomicU64,
    pub(super) calls: AtomicU64,
    pub(super) is_down: AtomicBool,
    /// Whether the last request was known to be denied.
    pub(super) was_known_denied: AtomicBool,
}

impl Store for DelayedStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let delay_us = self.delay_us.load(Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.was_known_denied.store(charges.is_known_denied(), Ordering::Relaxed);
        self.clock.set(self.clock.now_us() + delay_us);
        if self.is_down.load(Ordering::Relaxed) {
            return Err(StoreError::Timeout);
        }
        let outcomes = self.memory.decide(charges).await;
        self.clock.set(self.clock.now_us() + delay_us);
        outcomes
    }
}

pub(super) struct Fixture {
    pub(super) layered: DenyCached<Arc<DelayedStore>, Arc<ManualClock>>,
    pub(super) below: Arc<DelayedStore>,
    pub(super) cache: Arc<DenyCache>,
    pub(super) clock: Arc<ManualClock>,
}

impl Fixture {
    pub(super) fn new(max_age_us: u64, max_keys: usize) -> Self {
        Self::with(DenyCacheOptions {
            max_age: Duration::from_micros(max_age_us),
            max_keys,
            store_reserves: false,
        })
    }

    pub(super) fn with(options: DenyCacheOptions) -> Self {
        let clock = Arc::new(ManualClock::at(T0));
        let memory = Arc::new(MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock)));
        let (delay_us, calls, is_down, was_known_denied) = Default::default();
        let below =
            DelayedStore { memory, clock: Arc::clone(&clock), delay_us, calls, is_down, was_known_denied };
        let below = Arc::new(below);
        let cache = Arc::new(DenyCache::new(options));
        let layered = DenyCached::new(Arc::clone(&below), Some((Arc::clone(&cache), Arc::clone(&clock))));
        Self { layered, below, cache, clock }
    }

    /// The outcomes, and whether the store was called.
    pub(super) fn decide_through_layer(&self, charges: &Charges) -> (Outcomes, bool) {
        let before = self.below.calls.load(Ordering::Relaxed);
        let outcomes = self.layered.decide(charges).now_or_never().expect("memory answers at once");
        let called = self.below.calls.load(Ordering::Relaxed) > before;
        (outcomes.expect("memory always answers"), called)
    }
}

#[derive(Clone, Debug)]
pub(super) struct RequestedCharge {
    pub(super) counter: usize,
    pub(super) cost: Cost,
    pub(super) role: Role,
}

/// The kernel and the charging of each counter: the rule sets them, not the request.
#[derive(Clone, Debug)]
pub(super) struct Rules(pub(super) Vec<(Kernel, Charging)>);

#[derive(Clone, Debug)]
struct Step {
    pass_us: u64,
    delay_us: u64,
    is_through_layer: bool,
    /// From this step on, limits have this multiple of their first number.
    factor: Option<f64>,
    requested: Vec<RequestedCharge>,
}

impl Rules {
    /// The rules with a multiple of the numbers of their windows. A postpaid fixed window stays: a higher number would
    /// find fewer of the denied hits in its window. GCRA stays: a fraction that is read by two limits, one after the
    /// other, moves the time by a microsecond.
    fn with_factor(&self, factor: f64) -> Self {
        let changed = |&(kernel, charging): &(Kernel, Charging)| match (kernel, charging) {
            (Kernel::FixedWindow(_) | Kernel::CalendarWindow(_), Charging::Postpaid)
            | (Kernel::Gcra(_), _) => (kernel, charging),
            _ => (with_factor(&kernel, factor), charging),
        };
        Self(self.0.iter().map(changed).collect())
    }

    pub(super) fn charges(&self, requested: &[RequestedCharge]) -> Charges {
        let mut charges = Charges::default();
        for requested in requested {
            let (kernel, charging) = self.0[requested.counter];
            let cost = match (kernel, requested.cost.taken(), requested.cost.refunded()) {
                (Kernel::Slots(_), 0, 1..) => {
                    Cost::undo(1, Grant { id: requested.cost.refunded(), limit: None })
                }
                (Kernel::Slots(_), 1.., _) => Cost::slot(requested.cost.taken()),
                _ => requested.cost,
            };
            let on_store_failure = FailurePolicy::default();
            let charge = Charge { kernel, cost, charging, role: requested.role, on_store_failure };
            charges.push(charge, |key| key.push_str(&format!("key {}", requested.counter)));
        }
        charges
    }
}

fn kernel() -> impl Strategy<Value = Kernel> {
    (0..Kernel::KINDS, 1..8_u64, 1..60_u64, 1..8_u64).prop_map(|(kind, limit, length_us, burst)| match kind {
        0 => Kernel::FixedWindow(FixedWindow::new(limit, length_us)),
        1 => Kernel::SlidingWindow(SlidingWindow::new(limit, length_us)),
        2 => Kernel::SlidingLog(SlidingLog::new(limit, length_us)),
        3 => Kernel::Gcra(Gcra::new(limit, length_us, burst, Pacing::Meter)),
        4 => {
            let middle_us = T0 + 4 * length_us;
            let boundaries = [middle_us - 10 * burst, middle_us, middle_us + length_us];
            Kernel::CalendarWindow(CalendarWindow::new(limit, boundaries))
        }
        5 => Kernel::IntervalBucket(IntervalBucket::new(burst, limit, length_us)),
        6 => Kernel::Slots(Slots::new(limit, length_us)),
        _ => Kernel::Blocked(Blocked::new(length_us)),
    })
}

pub(super) fn rules() -> impl Strategy<Value = Rules> {
    let charging = prop_oneof![2 => Just(Charging::Prepaid), 1 => Just(Charging::Postpaid)];
    vec((kernel(), charging), COUNTERS).prop_map(Rules)
}

fn steps(refunds: u32) -> impl Strategy<Value = Vec<Step>> {
    let cost = prop_oneof![
        20 => (1..4_u64).prop_map(Cost::take),
        4 => (1..12_u64).prop_map(Cost::take),
        3 => Just(Cost::PEEK),
        refunds => (0..4_u64).prop_map(Cost::refund),
    ];
    let role = prop_oneof![
        6 => Just(Role::Enforce),
        1 => Just(Role::IdleQuota),
        2 => (0..2_u16).prop_map(Role::Quota),
    ];
    let charge =
        (0..COUNTERS, cost, role).prop_map(|(counter, cost, role)| RequestedCharge { counter, cost, role });
    let requested = prop_oneof![3 => vec(charge.clone(), 1), 2 => vec(charge, 2..4)];
    let factor = prop_oneof![9 => Just(None), 1 => prop_oneof![Just(0.0), 0.1..4.0].prop_map(Some)];
    let step = (0..9_u64, 0..5_u64, any::<bool>(), factor, requested);
    vec(
        step.prop_map(|(pass_us, delay_us, is_through_layer, factor, requested)| Step {
            pass_us,
            delay_us,
            is_through_layer,
            factor,
            requested,
        }),
        1..60,
    )
}

/// The admitted units of each postpaid fixed window that were not given back. Callers give back no more than these: the
/// layer does not record every denied hit, and a refund of denied hits would find fewer units.
#[derive(Default)]
struct AdmittedUnits([(u64, u64); COUNTERS]);

impl AdmittedUnits {
    /// The units of a counter in the window of this time; `None` if the counter is no postpaid fixed window.
    fn of(&mut self, rules: &Rules, counter: usize, now_us: u64) -> Option<&mut u64> {
        let index = match rules.0[counter] {
            (Kernel::FixedWindow(kernel), Charging::Postpaid) => now_us / kernel.window_us,
            (Kernel::CalendarWindow(kernel), Charging::Postpaid) => {
                let [first_us, middle_us, last_us] = kernel.boundaries();
                let earlier = first_us.saturating_sub(now_us).div_ceil(middle_us - first_us);
                let later = |last_us: u64| 2 + (now_us - last_us) / (last_us - middle_us);
                T0 - earlier + if now_us < last_us { u64::from(now_us >= middle_us) } else { later(last_us) }
            }
            _ => return None,
        };
        let (last_index, units) = &mut self.0[counter];
        if *last_index != index {
            (*last_index, *units) = (index, 0);
        }
        Some(units)
    }

    /// Lowers the refunds of a request, and takes them from the admitted units.
    fn lower_refunds(&mut self, rules: &Rules, requested: &mut [RequestedCharge], now_us: u64) {
        for charge in requested {
            if let Some(units) = self.of(rules, charge.counter, now_us).filter(|_| charge.cost.is_refund()) {
                charge.cost = Cost::refund(charge.cost.refunded().min(*units));
                *units -= charge.cost.refunded();
            }
        }
    }

    /// Adds the units of a decided request that fit.
    fn add(&mut self, rules: &Rules, charges: &Charges, outcomes: &Outcomes, now_us: u64) {
        for ((key, charge), outcome) in charges.iter().zip(&outcomes.by_charge) {
            let counter = key.strip_prefix("key ").expect("a key").parse().expect("a counter");
            let fits = outcome.verdict == Verdict::Fits;
            if let Some(units) = self.of(rules, counter, now_us).filter(|_| fits) {
                *units += charge.cost.taken();
            }
        }
    }
}

fn is_denied(charges: &Charges, outcomes: &Outcomes) -> bool {
    charges.is_denied(|index| outcomes.is_over(index))
}

/// Runs all cases. Returns the number of answers without a call of the store.
pub(super) fn run<V: std::fmt::Debug>(
    strategy: impl Strategy<Value = V>,
    case: impl Fn(V) -> Result<u64, TestCaseError>,
) -> u64 {
    let hits = AtomicU64::new(0);
    let mut runner = TestRunner::new(Config { cases: 1_500, ..properties::config(file!()) });
    let result = runner.run(&strategy, |input| {
        hits.fetch_add(case(input)?, Ordering::Relaxed);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    hits.into_inner()
}

/// The answer without `over_by`: the layer does not count its own denials in a fixed window.
pub(super) fn comparable(outcome: &Outcome) -> (Verdict, Report) {
    (outcome.verdict, Report { over_by: 0, ..outcome.report })
}

#[test]
fn as_the_only_client_the_layer_answers_like_the_store() {
    let options = (1..400_u64, any::<bool>());
    let options = options.prop_map(|(max_age_us, store_reserves)| DenyCacheOptions {
        max_age: Duration::from_micros(max_age_us),
        max_keys: 1_000,
        store_reserves,
    });
    let hits = run((rules(), steps(2), options), |(rules, steps, options)| {
        let (fixture, plain) = (Fixture::with(options), Fixture::new(1, 0));
        let mut admitted = AdmittedUnits::default();
        let first_rules = rules;
        let mut rules = first_rules.clone();
        for mut step in steps {
            if let Some(factor) = step.factor {
                rules = first_rules.with_factor(factor);
            }
            let now_us = fixture.clock.now_us() + step.pass_us;
            fixture.clock.set(now_us);
            admitted.lower_refunds(&rules, &mut step.requested, now_us);
            let charges = rules.charges(&step.requested);
            let expected = plain.below.memory.decide_at(&charges, now_us);
            admitted.add(&rules, &charges, &expected, now_us);
            let (answered, _) = fixture.decide_through_layer(&charges);
            prop_assert_eq!(is_denied(&charges, &answered), is_denied(&charges, &expected));
            for ((charge, answered), expected) in
                charges.values().zip(&answered.by_charge).zip(&expected.by_charge)
            {
                prop_assert_eq!(comparable(answered), comparable(expected), "{:?} at {}", charge, now_us);
            }
        }
        Ok(fixture.cache.stats().hits)
    });
    assert!(hits > 400, "{hits} answers without a call are too few for this test");
}

#[test]
fn beside_other_clients_the_layer_denies_only_what_the_store_denies() {
    let hits = run((rules(), steps(0)), |(rules, steps)| {
        let fixture = Fixture::new(1_000_000, 1_000);
        for step in steps {
            fixture.clock.set(fixture.clock.now_us() + step.pass_us);
            fixture.below.delay_us.store(step.delay_us, Ordering::Relaxed);
            let charges = rules.charges(&step.requested);
            let direct = || fixture.below.memory.decide_at(&charges, fixture.clock.now_us());
            if !step.is_through_layer {
                direct();
                continue;
            }
            let (answered, called) = fixture.decide_through_layer(&charges);
            if called {
                continue;
            }
            let expected = direct();
            prop_assert!(is_denied(&charges, &expected) || charges.values().all(|c| c.role != Role::Enforce));
            prop_assert!((0..charges.len()).all(|index| answered.is_over(index) && expected.is_over(index)));
        }
        Ok(fixture.cache.stats().hits)
    });
    assert!(hits > 400, "{hits} answers without a call are too few for this test");
}

pub(super) fn one(cost: Cost) -> Charges {
    Rules(vec![(Kernel::Gcra(Gcra::new(1, 1_000_000, 1, Pacing::Meter)), Charging::Prepaid)])
        .charges(&[RequestedCharge { counter: 0, cost, role: Role::Enforce }])
}

#[test]
fn a_denial_is_repeated_without_a_call_until_the_limit_admits() {
    let fixture = Fixture::new(1_000_000, 10);
    for _ in 0..1_000 {
        fixture.decide_through_layer(&one(Cost::take(1)));
    }
    assert_eq!(fixture.below.calls.load(Ordering::Relaxed), 2);
    fixture.clock.set(T0 + 1_000_000);
    assert_eq!(fixture.decide_through_layer(&one(Cost::take(1))).0.by_charge[0].verdict, Verdict::Fits);
}

#[test]
fn a_cached_denial_ends_by_age_purge_and_refund() {
    let fixture = Fixture::new(100, 10);
    let calls_the_store = |fixture: &Fixture| fixture.decide_through_layer(&one(Cost::take(1))).1;
    assert_eq!([0, 1, 2].map(|_| calls_the_store(&fixture)), [true, true, false]);
    fixture.clock.set(T0 + 100);
    assert_eq!([0, 1].map(|_| calls_the_store(&fixture)), [true, false]);
    fixture.cache.purge();
    assert_eq!([0, 1].map(|_| calls_the_store(&fixture)), [true, false]);
    // A refund through the layer takes effect at once.
    fixture.decide_through_layer(&one(Cost::refund(1)));
    assert_eq!(fixture.decide_through_layer(&one(Cost::take(1))).0.by_charge[0].verdict, Verdict::Fits);
}

#[test]
fn a_full_cache_evicts_and_keeps_its_bound() {
    let fixture = Fixture::new(1_000_000, 64);
    let deny = |number: u32| {
        let mut charges = Charges::default();
        let charge = one(Cost::take(2)).get(0).1.clone();
        charges.push(charge, |key| key.push_str(&number.to_string()));
        fixture.decide_through_layer(&charges).1
    };
    for number in 0..10_000 {
        deny(number);
    }
    let keys = fixture.cache.stats().keys;
    assert!(keys > 0 && keys <= 64, "{keys} keys");
    assert_eq!([(), ()].map(|()| deny(10_000)), [true, false], "a full cache keeps the newest denial");
}
