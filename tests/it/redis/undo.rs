//! An undo returns at most the units of its grant, after any time and any other requests. Two cases return more, within
//! bounds: a refund that was cut off while the grant stood, and GCRA grants that stood at the same time
//! (`overlapping_undos`). It returns them all, except what time may have returned since the grant.

use std::cell::{Cell, RefCell};

use ::store::redis::{RedisOptions, ReplayClient, TimedBatch};
use engine::algorithm::{CounterReading, Gcra, IntervalBucket, Kernel};
use engine::{Cost, DecidedBy, Outcome, Outcomes, Pacing, RetryAfter, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::redis::lua_twin::assert_ttls;
use crate::redis::lua_twin::sequence::period_us;
use crate::redis::lua_twin::strategies::{everyday, largest, small};
use crate::redis::one_charge;
use crate::support::properties;
use crate::support::redis::{Redis, parsed};

/// A minute boundary.
const START_US: u64 = 1_700_000_040_000_000;

/// The time before a request.
#[derive(Clone, Debug)]
pub(super) enum TimeStep {
    Us(u64),
    Periods(f64),
}

/// The units of a request: a few, or a share of the limit.
#[derive(Clone, Debug)]
pub(super) enum Units {
    Few(u64),
    Share(f64),
}

#[derive(Clone, Debug)]
struct Scenario {
    kernel: Kernel,
    before: Vec<(TimeStep, Units)>,
    granted: (TimeStep, Units),
    /// Refunds among them.
    between: Vec<(TimeStep, Units, bool)>,
    undone: TimeStep,
    after: Vec<(TimeStep, Units)>,
}

impl Units {
    pub(super) fn cost(&self, kernel: &Kernel) -> Cost {
        Cost::take(match *self {
            Self::Few(units) => units,
            Self::Share(share) => (share * kernel.max_cost() as f64) as u64 + 1,
        })
    }
}

pub(super) fn time_step() -> impl Strategy<Value = TimeStep> {
    prop_oneof![
        2 => Just(TimeStep::Us(0)),
        3 => (0..30_u64).prop_map(TimeStep::Us),
        4 => (0.0..0.6).prop_map(TimeStep::Periods),
        1 => (0.6..2.5).prop_map(TimeStep::Periods),
    ]
}

pub(super) fn request() -> impl Strategy<Value = (TimeStep, Units)> {
    let units = prop_oneof![
        3 => (1..4_u64).prop_map(Units::Few),
        3 => (0.0..0.7).prop_map(Units::Share),
    ];
    (time_step(), units)
}

fn scenario(kernels: impl Strategy<Value = Kernel>, refunds: bool) -> impl Strategy<Value = Scenario> {
    let requests = |most| vec(request(), 0..most);
    let is_refund = if refunds { any::<bool>().boxed() } else { Just(false).boxed() };
    let between = vec((request(), is_refund), 0..8);
    let between =
        between.prop_map(|each| each.into_iter().map(|((step, units), is)| (step, units, is)).collect());
    (kernels, requests(4), request(), between, time_step(), requests(6)).prop_map(
        |(kernel, before, granted, between, undone, after)| Scenario {
            kernel,
            before,
            granted,
            between,
            undone,
            after,
        },
    )
}

pub(super) struct Fixture {
    runtime: Runtime,
    client: RefCell<ReplayClient>,
    case: Cell<u64>,
    redis: Redis,
}

/// One counter in Redis.
pub(super) struct Counter<'s> {
    fixture: &'s Fixture,
    kernel: Kernel,
    key: String,
}

impl Fixture {
    pub(super) fn start() -> Self {
        let redis = Redis::start();
        let runtime = Runtime::new().expect("a runtime");
        let options = RedisOptions { urls: parsed([redis.url()]), ..RedisOptions::default() };
        let client = runtime.block_on(ReplayClient::connect(&options)).expect("Redis answers");
        Self { runtime, client: RefCell::new(client), case: Cell::new(0), redis }
    }

    pub(super) fn counter(&self, kernel: Kernel) -> Counter<'_> {
        self.case.set(self.case.get() + 1);
        Counter { fixture: self, kernel, key: format!("case/{}", self.case.get()) }
    }
}

impl Counter<'_> {
    pub(super) fn decide(&self, now_us: u64, cost: Cost) -> Outcome {
        let charges = one_charge(self.kernel, &self.key, cost);
        let batch = TimedBatch { now_us, requests: &[&charges] };
        let decided = self.fixture.runtime.block_on(self.fixture.client.borrow_mut().decide(&[batch]));
        decided.expect("Redis decides")[0][0].by_charge[0]
    }

    pub(super) fn undo(&self, now_us: u64, cost: Cost, granted: Outcome) -> Outcome {
        let charges = one_charge(self.kernel, &self.key, cost);
        let granted = Outcomes::from_iter([granted]);
        let undone =
            self.fixture.runtime.block_on(self.fixture.client.borrow_mut().undo(now_us, &charges, &granted));
        undone.expect("Redis undoes").by_charge[0]
    }

    pub(super) fn step_us(&self, step: &TimeStep) -> u64 {
        match *step {
            TimeStep::Us(us) => us,
            TimeStep::Periods(periods) => (periods * period_us(&self.kernel) as f64) as u64,
        }
    }
}

/// Two counters: `undone` has the grants and their undos, `never` has neither.
pub(super) struct Counters<'s> {
    pub(super) undone: Counter<'s>,
    pub(super) never: Counter<'s>,
    pub(super) now_us: u64,
    /// What an undo may return too much.
    pub(super) tolerated: Tolerated,
}

/// What the counter with the undone grants may have more than the counter without them.
#[derive(Clone, Copy, Default)]
pub(super) struct Tolerated {
    pub(super) units: u64,
    pub(super) us: u64,
}

/// Whether the two counters can still be compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparable {
    Yes,
    No,
}

impl Counters<'_> {
    /// Sends a request to `undone`, and to `never` too if it is admitted there.
    pub(super) fn send_to_both(&mut self, step: &TimeStep, cost: Cost) -> Result<Comparable, TestCaseError> {
        self.now_us += self.undone.step_us(step);
        if self.undone.decide(self.now_us, cost).verdict == Verdict::Over {
            return Ok(Comparable::Yes);
        }
        let never = self.never.decide(self.now_us, cost);
        if never.verdict == Verdict::Fits {
            return Ok(Comparable::Yes);
        }
        let wait = match never.report.retry_after {
            RetryAfter::In(us) => us,
            RetryAfter::Now | RetryAfter::Never => u64::MAX,
        };
        let missing = cost.needed().saturating_sub(never.report.remaining);
        prop_assert!(
            missing <= self.tolerated.units || wait <= self.tolerated.us || self.intervals_differ(),
            "admitted at {}",
            self.now_us
        );
        Ok(if self.tolerated.units + self.tolerated.us == 0 { Comparable::Yes } else { Comparable::No })
    }

    pub(super) fn peeks(&self) -> (Outcome, Outcome) {
        (self.undone.decide(self.now_us, Cost::PEEK), self.never.decide(self.now_us, Cost::PEEK))
    }

    pub(super) fn check_remaining(&self) -> Result<(), TestCaseError> {
        let (undone, never) = self.peeks();
        let no_more = undone.report.remaining <= never.report.remaining + self.tolerated.units;
        let no_earlier = never.report.reset_after_us <= undone.report.reset_after_us + self.tolerated.us;
        prop_assert!(
            no_more || self.tolerated.us > 0 && no_earlier || self.intervals_differ(),
            "{:?} against {:?} at {}",
            undone,
            never,
            self.now_us
        );
        Ok(())
    }

    /// Units that were granted at this time and are undone now are there again, except those that time may have
    /// returned meanwhile. The intervals of two interval buckets may differ, so these are not compared.
    fn check_nothing_lost(&self, granted_us: u64, cost: Cost) -> Result<(), TestCaseError> {
        let (undone, never) = self.peeks();
        let kept = undone.report.remaining;
        let is_kept = match &self.undone.kernel {
            Kernel::IntervalBucket(_) => true,
            Kernel::Gcra(_) => {
                let stood_us = self.now_us - granted_us;
                undone.report.reset_after_us <= never.report.reset_after_us + stood_us
            }
            Kernel::SlidingWindow(window)
                if granted_us / window.window_us() < self.now_us / window.window_us() =>
            {
                kept + cost.taken() >= never.report.remaining
            }
            _ => kept >= never.report.remaining,
        };
        prop_assert!(is_kept, "{:?} against {:?} at {}", undone, never, self.now_us);
        Ok(())
    }

    /// The intervals of an interval bucket begin at the first take after the bucket was full. So the two counters can
    /// refill at different times.
    fn intervals_differ(&self) -> bool {
        let (undone, never) = self.peeks();
        let Kernel::IntervalBucket(bucket) = self.undone.kernel else { return false };
        let last = |outcome: &Outcome| match outcome.decided_by {
            DecidedBy::Store(snapshot) => match snapshot.reading {
                CounterReading::Tokens(state) => state.start_us,
                _ => panic!("no interval bucket: {snapshot:?}"),
            },
            _ => panic!("not from the store: {outcome:?}"),
        };
        last(&undone).abs_diff(last(&never)) % bucket.interval_us() != 0
    }
}

impl Fixture {
    pub(super) fn counters(&self, kernel: Kernel) -> Counters<'_> {
        let (undone, never) = (self.counter(kernel), self.counter(kernel));
        Counters { undone, never, now_us: START_US, tolerated: Tolerated::default() }
    }
}

fn undo_later(fixture: &Fixture, scenario: &Scenario) -> Result<(), TestCaseError> {
    let mut counters = fixture.counters(scenario.kernel);
    for (step, units) in &scenario.before {
        counters.send_to_both(step, units.cost(&scenario.kernel))?;
    }
    let (step, units) = &scenario.granted;
    counters.now_us += counters.undone.step_us(step);
    let (cost, granted_us) = (units.cost(&scenario.kernel), counters.now_us);
    let granted = counters.undone.decide(counters.now_us, cost);
    for (step, units, is_refund) in &scenario.between {
        let mut between = units.cost(&scenario.kernel);
        if *is_refund {
            // It takes more from the counter that has more in it. The undo then returns this once more.
            counters.tolerated.units = cost.taken();
            between = Cost::refund(between.taken());
        }
        if counters.send_to_both(step, between)? == Comparable::No {
            return Ok(());
        }
    }
    counters.now_us += counters.undone.step_us(&scenario.undone);
    let answer = counters.undone.undo(counters.now_us, cost, granted);
    let (peeked, _) = counters.peeks();
    if granted.verdict == Verdict::Fits {
        prop_assert_eq!(
            answer.report.remaining,
            peeked.report.remaining,
            "the undo reports the remaining units"
        );
    }
    counters.check_remaining()?;
    counters.check_nothing_lost(granted_us, cost)?;
    for (step, units) in &scenario.after {
        if counters.send_to_both(step, units.cost(&scenario.kernel))? == Comparable::No {
            return Ok(());
        }
        counters.check_remaining()?;
        counters.now_us += peeked.report.next_after_us;
        counters.check_remaining()?;
    }
    Ok(())
}

/// An undo at the time of the grant restores the counter.
fn undo_at_once(fixture: &Fixture, scenario: &Scenario) -> Result<(), TestCaseError> {
    let mut counters = fixture.counters(scenario.kernel);
    for (step, units) in &scenario.before {
        counters.send_to_both(step, units.cost(&scenario.kernel))?;
    }
    let cost = scenario.granted.1.cost(&scenario.kernel);
    let granted = counters.undone.decide(counters.now_us, cost);
    let answer = counters.undone.undo(counters.now_us, cost, granted);
    let (undone, never) = counters.peeks();
    prop_assert_eq!(undone.report, never.report);
    if granted.verdict == Verdict::Fits {
        prop_assert_eq!(answer.report.remaining, never.report.remaining);
    }
    for (step, units) in &scenario.after {
        counters.now_us += counters.undone.step_us(step);
        let cost = units.cost(&scenario.kernel);
        let (undone, never) =
            (counters.undone.decide(counters.now_us, cost), counters.never.decide(counters.now_us, cost));
        prop_assert_eq!((undone.verdict, undone.report), (never.verdict, never.report));
    }
    Ok(())
}

/// Runs both with every scenario, and the first also with refunds between grant and undo.
fn check_undo(kernels: impl Strategy<Value = Kernel> + 'static) {
    let (fixture, kernels) = (Fixture::start(), kernels.boxed());
    for refunds in [false, true] {
        let mut runner = properties::runner(file!());
        let result = runner.run(&scenario(kernels.clone(), refunds), |scenario| {
            undo_later(&fixture, &scenario)?;
            undo_at_once(&fixture, &scenario)
        });
        if let Err(failure) = result {
            panic!("{failure}");
        }
    }
    assert_ttls(&fixture.redis);
}

#[test]
fn an_undo_never_returns_too_much_with_small_numbers() {
    check_undo(small(1));
}

#[test]
fn an_undo_never_returns_too_much_with_everyday_numbers() {
    check_undo(everyday(1));
}

#[test]
fn an_undo_never_returns_too_much_with_the_largest_numbers() {
    check_undo(largest());
}

/// Buckets that need many intervals to fill.
#[test]
fn an_undo_never_returns_units_that_an_interval_has_refilled() {
    let numbers = (5..40_u64, 1..4_u64, 1..40_u64);
    check_undo(numbers.prop_map(|(capacity, refill, interval_us)| {
        Kernel::IntervalBucket(IntervalBucket::new(capacity, refill, interval_us))
    }));
}

/// While other requests keep the bucket from being full, time is never lost.
#[test]
fn an_undo_returns_everything_if_the_bucket_was_never_full() {
    let fixture = Fixture::start();
    for fraction in [0, 1] {
        let mut counters =
            fixture.counters(Kernel::Gcra(Gcra::new(1_000, 1_000_000 + fraction, 100, Pacing::Meter)));
        counters.send_to_both(&TimeStep::Us(0), Cost::take(20)).expect("both admit it");
        // Every 900 us one unit stays and ten are held for 300 us. One unit is freed every 1,000 us.
        for _ in 0..100 {
            counters.send_to_both(&TimeStep::Us(600), Cost::take(1)).expect("both admit it");
            let granted = counters.undone.decide(counters.now_us, Cost::take(10));
            assert_eq!(granted.verdict, Verdict::Fits);
            counters.now_us += 300;
            counters.undone.undo(counters.now_us, Cost::take(10), granted);
        }
        let (undone, never) = counters.peeks();
        let lost_us = undone.report.reset_after_us - never.report.reset_after_us;
        assert!(lost_us <= 100 * fraction, "{lost_us} us of {} undos", 100);
    }
}

#[test]
fn time_drained_since_the_grant_is_not_returned() {
    let fixture = Fixture::start();
    // A burst of 10, and one unit is freed every 100 us.
    let counter = fixture.counter(Kernel::Gcra(Gcra::new(10, 1_000, 10, Pacing::Meter)));
    let cost = Cost::take(4);
    let granted = counter.decide(START_US, cost);
    // 250 us of the 400 us have drained. Then 3 units are taken.
    counter.decide(START_US + 250, Cost::take(3));
    // The counter is at 450 us then, and the undo returns 150 us.
    assert_eq!(counter.undo(START_US + 250, cost, granted).report.reset_after_us, 300);
}
