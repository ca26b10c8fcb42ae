//! Every answer of the deny cache is the answer that the store would give.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ratelimitd::clock::{Clock, ManualClock};
use ratelimitd::engine::algorithm::{FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow};
use ratelimitd::engine::{
    Charge, Charges, Charging, Cost, FailurePolicy, Outcome, Outcomes, Pacing, Report, Role, Store,
    StoreError, Verdict,
};
use ratelimitd::store::deny_cache::{DenyCache, DenyCacheOptions, DenyCached};
use ratelimitd::store::memory::{MemoryOptions, MemoryStore};

use crate::support::properties;

/// A minute boundary.
const T0: u64 = 1_700_000_040_000_000;
const COUNTERS: usize = 4;

type Memory = Arc<MemoryStore<Arc<ManualClock>>>;

/// A store with latency: time passes before and after its decision.
struct Distant {
    memory: Memory,
    clock: Arc<ManualClock>,
    way_us: AtomicU64,
    calls: AtomicU64,
}

impl Store for Distant {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let way_us = self.way_us.load(Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.clock.set(self.clock.now_us() + way_us);
        let outcomes = self.memory.decide(charges).await;
        self.clock.set(self.clock.now_us() + way_us);
        outcomes
    }
}

struct Fixture {
    layered: DenyCached<Arc<Distant>, Arc<ManualClock>>,
    below: Arc<Distant>,
    cache: Arc<DenyCache>,
    clock: Arc<ManualClock>,
}

impl Fixture {
    fn new(max_age_us: u64, max_keys: usize) -> Self {
        let clock = Arc::new(ManualClock::at(T0));
        let memory = Arc::new(MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock)));
        let below = Distant { memory, clock: Arc::clone(&clock), way_us: 0.into(), calls: 0.into() };
        let below = Arc::new(below);
        let options = DenyCacheOptions {
            max_age: Duration::from_micros(max_age_us),
            max_keys,
            require_all_limits: false,
        };
        let cache = Arc::new(DenyCache::new(options));
        let layered = DenyCached::new(Arc::clone(&below), Some((Arc::clone(&cache), Arc::clone(&clock))));
        Self { layered, below, cache, clock }
    }

    /// The answer, and whether the store was called for it.
    fn ask(&self, charges: &Charges) -> (Outcomes, bool) {
        let before = self.below.calls.load(Ordering::Relaxed);
        let outcomes = self.layered.decide(charges).now_or_never().expect("memory answers at once");
        let asked = self.below.calls.load(Ordering::Relaxed) > before;
        (outcomes.expect("memory always answers"), asked)
    }
}

#[derive(Clone, Debug)]
struct Asked {
    counter: usize,
    cost: Cost,
    role: Role,
}

/// The kernel and the charging of each counter: the rule sets them, not the request.
#[derive(Clone, Debug)]
struct Rules(Vec<(Kernel, Charging)>);

#[derive(Clone, Debug)]
struct Step {
    pass_us: u64,
    way_us: u64,
    is_ours: bool,
    asked: Vec<Asked>,
}

impl Rules {
    fn charges(&self, asked: &[Asked]) -> Charges {
        let mut charges = Charges::default();
        for asked in asked {
            let (kernel, charging) = self.0[asked.counter];
            // A refund would show the charges that the layer did not pass to a postpaid counter, which is documented.
            let cost = if charging == Charging::Postpaid && asked.cost.is_refund() {
                Cost::take(1)
            } else {
                asked.cost
            };
            let on_store_failure = FailurePolicy::default();
            let charge = Charge { kernel, cost, charging, role: asked.role, on_store_failure };
            charges.push(charge, |key| key.push_str(&format!("key {}", asked.counter)));
        }
        charges
    }
}

fn kernel() -> impl Strategy<Value = Kernel> {
    (0..5_u8, 1..8_u64, 1..60_u64, 1..8_u64).prop_map(|(kind, limit, length_us, burst)| match kind {
        0 => Kernel::FixedWindow(FixedWindow::new(limit, length_us)),
        1 => Kernel::SlidingWindow(SlidingWindow::new(limit, length_us)),
        2 => Kernel::SlidingLog(SlidingLog::new(limit, length_us)),
        3 => Kernel::Gcra(Gcra::new(limit, length_us, burst, Pacing::Meter)),
        _ => Kernel::IntervalBucket(IntervalBucket::new(burst, limit, length_us)),
    })
}

fn rules() -> impl Strategy<Value = Rules> {
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
        1 => Just(Role::NonBinding),
        2 => (0..2_u16).prop_map(Role::Quota),
    ];
    let asked = (0..COUNTERS, cost, role).prop_map(|(counter, cost, role)| Asked { counter, cost, role });
    let asked = prop_oneof![3 => vec(asked.clone(), 1), 2 => vec(asked, 2..4)];
    let step = (0..9_u64, 0..5_u64, any::<bool>(), asked);
    vec(step.prop_map(|(pass_us, way_us, is_ours, asked)| Step { pass_us, way_us, is_ours, asked }), 1..60)
}

fn is_held(charges: &Charges, outcomes: &Outcomes) -> bool {
    charges.is_denied(|index| outcomes.is_over(index))
}

/// Runs all cases. Returns how many answers came without the store.
fn run<V: std::fmt::Debug>(
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
fn comparable(outcome: &Outcome) -> (Verdict, Report) {
    (outcome.verdict, Report { over_by: 0, ..outcome.report })
}

#[test]
fn alone_it_answers_as_the_store_does() {
    let hits = run((rules(), steps(2), 1..400_u64), |(rules, steps, max_age_us)| {
        let (fixture, plain) = (Fixture::new(max_age_us, 1_000), Fixture::new(1, 0));
        for step in steps {
            let now_us = fixture.clock.now_us() + step.pass_us;
            fixture.clock.set(now_us);
            let charges = rules.charges(&step.asked);
            let expected = plain.below.memory.decide_at(&charges, now_us);
            let (answered, _) = fixture.ask(&charges);
            prop_assert_eq!(is_held(&charges, &answered), is_held(&charges, &expected));
            let held = is_held(&charges, &expected);
            for ((charge, answered), expected) in
                charges.values().zip(&answered.by_charge).zip(&expected.by_charge)
            {
                let expected = expected.as_ref().expect("memory decides every charge");
                match answered {
                    None => prop_assert!(held && !charge.is_recorded(expected.verdict, true), "{charge:?}"),
                    Some(answered) => {
                        prop_assert_eq!(
                            comparable(answered),
                            comparable(expected),
                            "{:?} at {}",
                            charge,
                            now_us
                        );
                    }
                }
            }
        }
        Ok(fixture.cache.stats().hits)
    });
    assert!(hits > 1_000, "{hits} answers without the store prove little");
}

#[test]
fn beside_others_it_denies_only_what_the_store_denies() {
    let hits = run((rules(), steps(0)), |(rules, steps)| {
        let fixture = Fixture::new(1_000_000, 1_000);
        for step in steps {
            fixture.clock.set(fixture.clock.now_us() + step.pass_us);
            fixture.below.way_us.store(step.way_us, Ordering::Relaxed);
            let charges = rules.charges(&step.asked);
            let direct = || fixture.below.memory.decide_at(&charges, fixture.clock.now_us());
            if !step.is_ours {
                direct();
                continue;
            }
            let (answered, asked) = fixture.ask(&charges);
            if asked {
                continue;
            }
            let expected = direct();
            prop_assert!(is_held(&charges, &expected) || charges.values().all(|c| c.role != Role::Enforce));
            for (index, answered) in answered.by_charge.iter().enumerate() {
                if answered.is_some() {
                    prop_assert!(expected.is_over(index));
                }
            }
        }
        Ok(fixture.cache.stats().hits)
    });
    assert!(hits > 1_000, "{hits} answers without the store prove little");
}

fn one(cost: Cost) -> Charges {
    Rules(vec![(Kernel::Gcra(Gcra::new(1, 1_000_000, 1, Pacing::Meter)), Charging::Prepaid)])
        .charges(&[Asked { counter: 0, cost, role: Role::Enforce }])
}

#[test]
fn a_thousand_denials_are_one_call() {
    let fixture = Fixture::new(1_000_000, 10);
    for _ in 0..1_000 {
        fixture.ask(&one(Cost::take(1)));
    }
    assert_eq!(fixture.below.calls.load(Ordering::Relaxed), 2);
    fixture.clock.set(T0 + 1_000_000);
    assert_eq!(fixture.ask(&one(Cost::take(1))).0.by_charge[0].expect("decided").verdict, Verdict::Fits);
}

#[test]
fn a_denial_ages_and_can_be_forgotten() {
    let fixture = Fixture::new(100, 10);
    let asks_the_store = |fixture: &Fixture| fixture.ask(&one(Cost::take(1))).1;
    assert_eq!([0, 1, 2].map(|_| asks_the_store(&fixture)), [true, true, false]);
    fixture.clock.set(T0 + 100);
    assert_eq!([0, 1].map(|_| asks_the_store(&fixture)), [true, false]);
    fixture.cache.purge();
    assert_eq!([0, 1].map(|_| asks_the_store(&fixture)), [true, false]);
    // A refund through the layer takes effect at once.
    fixture.ask(&one(Cost::refund(1)));
    assert_eq!(fixture.ask(&one(Cost::take(1))).0.by_charge[0].expect("decided").verdict, Verdict::Fits);
}

#[test]
fn it_is_bounded_and_evicts() {
    let fixture = Fixture::new(1_000_000, 64);
    let deny = |number: u32| {
        let mut charges = Charges::default();
        let charge = one(Cost::take(2)).get(0).1.clone();
        charges.push(charge, |key| key.push_str(&number.to_string()));
        fixture.ask(&charges).1
    };
    for number in 0..10_000 {
        deny(number);
    }
    let keys = fixture.cache.stats().keys;
    assert!(keys > 0 && keys <= 64, "{keys} keys");
    assert_eq!([(), ()].map(|()| deny(10_000)), [true, false], "a full cache keeps the newest denial");
}
