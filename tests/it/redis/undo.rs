//! An undo returns the units of its grant and never more, after any time and any other requests.

use std::cell::{Cell, RefCell};

use proptest::collection::vec;
use proptest::prelude::*;
use ratelimitd::engine::algorithm::{Facts, Gcra, IntervalBucket, Kernel, SlidingLog};
use ratelimitd::engine::{Cost, DecidedBy, Outcome, Outcomes, Pacing, Verdict};
use ratelimitd::store::redis::{RedisOptions, ReplayClient, TimedBatch};
use tokio::runtime::Runtime;

use crate::redis::lua_twin::assert_ttls;
use crate::redis::lua_twin::sequence::{everyday, largest, period_us, small};
use crate::redis::one;
use crate::support::properties;
use crate::support::redis::{Redis, parsed};

/// A minute boundary.
const START_US: u64 = 1_700_000_040_000_000;

/// The time that passes before a request.
#[derive(Clone, Debug)]
enum Pass {
    Us(u64),
    Periods(f64),
}

/// The units of a request: a few, or a share of the limit.
#[derive(Clone, Debug)]
enum Units {
    Few(u64),
    Share(f64),
}

#[derive(Clone, Debug)]
struct Scenario {
    kernel: Kernel,
    before: Vec<(Pass, Units)>,
    granted: (Pass, Units),
    between: Vec<(Pass, Units)>,
    undone: Pass,
    after: Vec<(Pass, Units)>,
}

impl Units {
    fn cost(&self, kernel: &Kernel) -> Cost {
        Cost::take(match *self {
            Self::Few(units) => units,
            Self::Share(share) => (share * kernel.max_cost() as f64) as u64 + 1,
        })
    }
}

fn pass() -> impl Strategy<Value = Pass> {
    prop_oneof![
        2 => Just(Pass::Us(0)),
        3 => (0..30_u64).prop_map(Pass::Us),
        4 => (0.0..0.6).prop_map(Pass::Periods),
        1 => (0.6..2.5).prop_map(Pass::Periods),
    ]
}

fn asked() -> impl Strategy<Value = (Pass, Units)> {
    let units = prop_oneof![
        3 => (1..4_u64).prop_map(Units::Few),
        3 => (0.0..0.7).prop_map(Units::Share),
    ];
    (pass(), units)
}

fn scenario(kernels: impl Strategy<Value = Kernel>) -> impl Strategy<Value = Scenario> {
    let requests = |most| vec(asked(), 0..most);
    (kernels, requests(4), asked(), requests(8), pass(), requests(6)).prop_map(
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

struct Fixture {
    runtime: Runtime,
    client: RefCell<ReplayClient>,
    case: Cell<u64>,
    redis: Redis,
}

/// One counter in Redis.
struct Counter<'s> {
    fixture: &'s Fixture,
    kernel: Kernel,
    key: String,
}

impl Fixture {
    fn start() -> Self {
        let redis = Redis::start();
        let runtime = Runtime::new().expect("a runtime");
        let options = RedisOptions { urls: parsed([redis.url()]), ..RedisOptions::default() };
        let client = runtime.block_on(ReplayClient::connect(&options)).expect("Redis is there");
        Self { runtime, client: RefCell::new(client), case: Cell::new(0), redis }
    }

    fn counter(&self, kernel: Kernel) -> Counter<'_> {
        self.case.set(self.case.get() + 1);
        Counter { fixture: self, kernel, key: format!("case/{}", self.case.get()) }
    }
}

impl Counter<'_> {
    fn ask(&self, now_us: u64, cost: Cost) -> Outcome {
        let charges = one(self.kernel, &self.key, cost);
        let batch = TimedBatch { now_us, requests: &[&charges] };
        let decided = self.fixture.runtime.block_on(self.fixture.client.borrow_mut().decide(&[batch]));
        decided.expect("Redis decides")[0][0].by_charge[0].expect("decided")
    }

    fn undo(&self, now_us: u64, cost: Cost, granted: Outcome) -> Outcome {
        let charges = one(self.kernel, &self.key, cost);
        let granted = Outcomes::from_iter([granted]);
        let undone =
            self.fixture.runtime.block_on(self.fixture.client.borrow_mut().undo(now_us, &charges, &granted));
        undone.expect("Redis undoes").by_charge[0].expect("decided")
    }

    fn passed(&self, pass: &Pass) -> u64 {
        match *pass {
            Pass::Us(us) => us,
            Pass::Periods(periods) => (periods * period_us(&self.kernel) as f64) as u64,
        }
    }
}

/// Two counters: `undone` has the grant and its undo, `never` does not.
struct Counters<'s> {
    undone: Counter<'s>,
    never: Counter<'s>,
    now_us: u64,
}

impl Counters<'_> {
    /// Sends a request to `undone`, and to `never` too if it is admitted there.
    fn both(&mut self, (pass, units): &(Pass, Units)) -> Result<(), TestCaseError> {
        self.now_us += self.undone.passed(pass);
        let cost = units.cost(&self.undone.kernel);
        if self.undone.ask(self.now_us, cost).verdict == Verdict::Fits {
            let never = self.never.ask(self.now_us, cost);
            prop_assert!(
                never.verdict == Verdict::Fits || self.out_of_step(),
                "{} at {}",
                "admitted",
                self.now_us
            );
        }
        Ok(())
    }

    fn peeks(&self) -> (Outcome, Outcome) {
        (self.undone.ask(self.now_us, Cost::PEEK), self.never.ask(self.now_us, Cost::PEEK))
    }

    fn never_more(&self) -> Result<(), TestCaseError> {
        let (undone, never) = self.peeks();
        let no_more = undone.report.remaining <= never.report.remaining;
        prop_assert!(no_more || self.out_of_step(), "{:?} against {:?} at {}", undone, never, self.now_us);
        Ok(())
    }

    /// A bucket that refills at intervals counts them from the first take after it was full, so any further take may
    /// move them forward: with or without an undo the two then refill at different instants.
    fn out_of_step(&self) -> bool {
        let (undone, never) = self.peeks();
        let Kernel::IntervalBucket(bucket) = self.undone.kernel else { return false };
        let last = |outcome: &Outcome| match outcome.decided_by {
            DecidedBy::Store(standing) => match standing.facts {
                Facts::Tokens(state) => state.last_us,
                _ => panic!("no bucket: {standing:?}"),
            },
            _ => panic!("not from the store: {outcome:?}"),
        };
        last(&undone).abs_diff(last(&never)) % bucket.interval_us() != 0
    }
}

fn undo_later(fixture: &Fixture, scenario: &Scenario) -> Result<(), TestCaseError> {
    let (undone, never) = (fixture.counter(scenario.kernel), fixture.counter(scenario.kernel));
    let mut counters = Counters { undone, never, now_us: START_US };
    for request in &scenario.before {
        counters.both(request)?;
    }
    let (pass, units) = &scenario.granted;
    counters.now_us += counters.undone.passed(pass);
    let cost = units.cost(&scenario.kernel);
    let granted = counters.undone.ask(counters.now_us, cost);
    for request in &scenario.between {
        counters.both(request)?;
    }
    counters.now_us += counters.undone.passed(&scenario.undone);
    let answer = counters.undone.undo(counters.now_us, cost, granted);
    let (peeked, _) = counters.peeks();
    if granted.verdict == Verdict::Fits {
        prop_assert_eq!(answer.report.remaining, peeked.report.remaining, "the undo says how things stand");
    }
    counters.never_more()?;
    for request in &scenario.after {
        counters.both(request)?;
        counters.never_more()?;
        counters.now_us += peeked.report.next_after_us;
        counters.never_more()?;
    }
    Ok(())
}

/// An undo at the time of the grant leaves no trace.
fn undo_at_once(fixture: &Fixture, scenario: &Scenario) -> Result<(), TestCaseError> {
    let (undone, never) = (fixture.counter(scenario.kernel), fixture.counter(scenario.kernel));
    let mut counters = Counters { undone, never, now_us: START_US };
    for request in &scenario.before {
        counters.both(request)?;
    }
    let cost = scenario.granted.1.cost(&scenario.kernel);
    let granted = counters.undone.ask(counters.now_us, cost);
    let answer = counters.undone.undo(counters.now_us, cost, granted);
    let (undone, never) = counters.peeks();
    prop_assert_eq!(undone.report, never.report);
    if granted.verdict == Verdict::Fits {
        prop_assert_eq!(answer.report.remaining, never.report.remaining);
    }
    for (pass, units) in &scenario.after {
        counters.now_us += counters.undone.passed(pass);
        let cost = units.cost(&scenario.kernel);
        let (undone, never) =
            (counters.undone.ask(counters.now_us, cost), counters.never.ask(counters.now_us, cost));
        prop_assert_eq!((undone.verdict, undone.report), (never.verdict, never.report));
    }
    Ok(())
}

fn hold(kernels: impl Strategy<Value = Kernel>) {
    let fixture = Fixture::start();
    let mut runner = properties::runner(file!());
    let result = runner.run(&scenario(kernels), |scenario| {
        undo_later(&fixture, &scenario)?;
        undo_at_once(&fixture, &scenario)
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert_ttls(&fixture.redis);
}

#[test]
fn an_undo_never_gives_back_too_much_on_small_numbers() {
    hold(small(1));
}

#[test]
fn an_undo_never_gives_back_too_much_on_everyday_numbers() {
    hold(everyday(1));
}

#[test]
fn an_undo_never_gives_back_too_much_on_the_largest_numbers() {
    hold(largest());
}

/// Buckets that take many intervals to fill.
#[test]
fn an_undo_never_gives_back_what_intervals_brought() {
    let numbers = (5..40_u64, 1..4_u64, 1..40_u64);
    hold(numbers.prop_map(|(capacity, refill, interval_us)| {
        Kernel::IntervalBucket(IntervalBucket::new(capacity, refill, interval_us))
    }));
}

#[test]
fn idle_time_since_the_grant_is_not_given_back() {
    let fixture = Fixture::start();
    // 10 at once, one back every 100 us.
    let counter = fixture.counter(Kernel::Gcra(Gcra::new(10, 1_000, 10, Pacing::Meter)));
    let cost = Cost::take(4);
    let granted = counter.ask(START_US, cost);
    // The first 250 us of the 400 have drained by themselves; meanwhile 3 were taken.
    counter.ask(START_US + 250, Cost::take(3));
    // Of the 450 us that are owed then, 150 are given back.
    assert_eq!(counter.undo(START_US + 250, cost, granted).report.reset_after_us, 300);
}

#[test]
fn an_undo_that_comes_after_many_others_is_dropped() {
    let fixture = Fixture::start();
    for (others, remaining) in [(63, 37), (64, 35)] {
        let counter = fixture.counter(Kernel::SlidingLog(SlidingLog::new(100, 1_000_000)));
        let granted = counter.ask(START_US, Cost::take(1));
        for other in 1..=others {
            counter.ask(START_US + other, Cost::take(1));
        }
        let undone = counter.undo(START_US + others, Cost::take(1), granted);
        assert_eq!(undone.report.remaining, remaining, "after {others} others");
    }
}
