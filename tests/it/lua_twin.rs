//! The script and the engine are twins: the same requests at the same times get the same answers, every number of
//! them. The engine's side is the model below; Redis decides the same sequence through [`Timeline`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ratelimitd::engine::algorithm::{
    Ask, Blocked, FixedWindow, Gcra, IntervalBucket, Kernel, LONGEST_REFILL_US, SlidingLog, SlidingWindow,
    State,
};
use ratelimitd::engine::{
    Basis, Charge, Charges, Charging, Cost, FailurePolicy, Outcome, Outcomes, Pacing, RetryAfter, Role,
    Verdict,
};
use ratelimitd::store::redis::{Moment, RedisOptions, Timeline};
use tokio::runtime::Runtime;

use crate::support::redis::Redis;

/// A minute boundary of our days, so that numbers are as large as they get in earnest.
const START_US: u64 = 1_700_000_040_000_000;
const LONGEST_US: u64 = 366 * 86_400 * 1_000_000;

/// The engine's side: states in a map that never forgets.
#[derive(Default)]
struct Model {
    states: HashMap<String, State>,
}

impl Model {
    fn decide(&mut self, charges: &Charges, now_us: u64) -> Outcomes {
        let ask = |charge: &Charge| Ask { now_us, cost: charge.cost };
        let each = charges.each();
        let verdicts: Vec<_> = each
            .iter()
            .map(|charge| charge.kernel.verdict(self.states.get(charges.key(charge)), ask(charge)))
            .collect();
        let held = charges.held_back(|place| verdicts[place]);
        let mut outcomes = Outcomes::default();
        for (charge, &verdict) in each.iter().zip(&verdicts) {
            let key = charges.key(charge);
            if charge.is_recorded(verdict, held) {
                let before = self.states.remove(key);
                if let Some(after) = charge.kernel.recorded(before, ask(charge)) {
                    self.states.insert(key.to_owned(), after);
                }
            }
            let facts = charge.kernel.facts(self.states.get(key), ask(charge));
            outcomes.each.push(Outcome {
                verdict,
                report: charge.kernel.report(&facts, ask(charge), verdict),
                basis: Basis::Store,
            });
        }
        outcomes
    }
}

/// What one charge asks of one of the sequence's counters.
#[derive(Clone, Debug)]
struct Asked {
    counter: usize,
    amount: Amount,
    charging: Charging,
    role: Role,
}

#[derive(Clone, Debug)]
enum Amount {
    Peek,
    Take(f64),
    Few(u64),
    Saturated,
    Refund(f64),
}

/// How time moves before a batch.
#[derive(Clone, Debug)]
enum Pass {
    /// Microseconds.
    Us(u64),
    /// Parts of the first counter's period.
    Periods(f64),
    /// To when the last answer says something changes, and so many microseconds beyond or before.
    Due(i64),
    /// Back by so many microseconds.
    Back(u64),
}

#[derive(Clone, Debug)]
struct Sequence {
    kernels: Vec<Kernel>,
    batches: Vec<(Pass, Vec<Vec<Asked>>)>,
}

fn gcra(limit: u64, period_us: u64, burst: u64, pacing: Pacing) -> Gcra {
    let (mut divisor, mut rest) = (period_us, limit);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    Gcra { limit, period_us, burst, pacing, numerator: period_us / divisor, denominator: limit / divisor }
}

/// Kernels with limits and lengths from these, inside the engine's bounds.
fn kernel(
    limit: impl Strategy<Value = u64> + Clone + 'static,
    length_us: impl Strategy<Value = u64> + Clone + 'static,
) -> impl Strategy<Value = Kernel> {
    let numbers = (limit.clone(), limit, length_us);
    (0..7_u8, numbers, any::<bool>()).prop_map(|(kind, (limit, other, length_us), queue)| {
        let (rate, burst) = (limit.max(1), other.max(1));
        let pacing = if queue { Pacing::Queue } else { Pacing::Meter };
        // A burst that would take longer than ten years to drain is none that a rule can have.
        let longest = u128::from(LONGEST_REFILL_US) * u128::from(rate) / u128::from(length_us);
        let burst = burst.min(u64::try_from(longest).unwrap_or(u64::MAX)).max(1);
        match kind {
            0 => Kernel::FixedWindow(FixedWindow { limit, window_us: length_us }),
            1 => Kernel::SlidingWindow(SlidingWindow { limit, window_us: length_us }),
            2 => Kernel::SlidingLog(SlidingLog { limit: limit.min(10_000), window_us: length_us }),
            3 | 4 => Kernel::Gcra(gcra(rate, length_us, burst, pacing)),
            5 => Kernel::IntervalBucket(IntervalBucket {
                capacity: burst.min(rate.saturating_mul(10).min(u64::from(u32::MAX))),
                refill: rate,
                interval_us: length_us,
            }),
            _ => Kernel::Blocked(Blocked),
        }
    })
}

fn period_us(kernel: &Kernel) -> u64 {
    match kernel {
        Kernel::FixedWindow(k) => k.window_us,
        Kernel::SlidingWindow(k) => k.window_us,
        Kernel::SlidingLog(k) => k.window_us,
        Kernel::Gcra(k) => k.period_us,
        Kernel::IntervalBucket(k) => k.interval_us,
        Kernel::Blocked(_) => 1,
    }
}

fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        10 => Just(Amount::Peek),
        5 => (0.0..1.2).prop_map(Amount::Refund),
        5 => (1..4_u64).prop_map(|units| Amount::Refund(units as f64 * 1e-9)),
        2 => Just(Amount::Saturated),
        38 => (1..4_u64).prop_map(Amount::Few),
        40 => (0.0..2.1).prop_map(Amount::Take),
    ]
}

impl Amount {
    /// In units of a limit that can hold `max_cost`.
    fn cost(&self, max_cost: u64) -> Cost {
        let part = |share: f64| (share * max_cost as f64) as u64 + 1;
        match *self {
            Self::Peek => Cost::PEEK,
            Self::Take(share) => Cost::take(part(share)),
            Self::Few(units) => Cost::take(units),
            Self::Saturated => Cost::take(u64::MAX),
            Self::Refund(share) => Cost::refund(part(share)),
        }
    }
}

fn asked(counters: usize) -> impl Strategy<Value = Asked> {
    let charging = prop_oneof![3 => Just(Charging::Prepaid), 1 => Just(Charging::Postpaid)];
    let role = prop_oneof![
        5 => Just(Role::Enforce),
        2 => Just(Role::Free),
        3 => (0..3_u16).prop_map(Role::Quota),
    ];
    (0..counters, amount(), charging, role).prop_map(|(counter, amount, charging, role)| Asked {
        counter,
        amount,
        charging,
        role,
    })
}

fn pass() -> impl Strategy<Value = Pass> {
    prop_oneof![
        25 => (0..60_u64).prop_map(Pass::Us),
        25 => (0.0..1.3).prop_map(Pass::Periods),
        5 => (1.3..4.0).prop_map(Pass::Periods),
        35 => (-1..=1_i64).prop_map(Pass::Due),
        8 => (1..80_u64).prop_map(Pass::Back),
    ]
}

fn sequence(kernels: impl Strategy<Value = Kernel>) -> impl Strategy<Value = Sequence> {
    let request = prop_oneof![3 => vec(asked(4), 1), 2 => vec(asked(4), 2..5)];
    let batch = prop_oneof![3 => vec(request.clone(), 1..3), 1 => vec(request, 3..20)];
    (vec(kernels, 4), vec((pass(), batch), 1..40))
        .prop_map(|(kernels, batches)| Sequence { kernels, batches })
}

impl Sequence {
    fn charges(&self, asked: &[Asked], case: u64) -> Charges {
        let mut charges = Charges::default();
        for asked in asked {
            let kernel = self.kernels[asked.counter];
            let charge = Charge {
                key: 0..0,
                kernel,
                cost: asked.amount.cost(kernel.max_cost()),
                charging: asked.charging,
                role: asked.role,
                on_store_failure: FailurePolicy::default(),
            };
            charges.push(charge, |key| key.push_str(&format!("{case}/{}", asked.counter)));
        }
        charges
    }

    fn moved(&self, now_us: u64, pass: &Pass, last: &Outcomes) -> u64 {
        let next = match *pass {
            Pass::Us(us) => now_us + us,
            Pass::Periods(periods) => now_us + (periods * period_us(&self.kernels[0]) as f64) as u64,
            Pass::Due(beyond) => now_us.saturating_add_signed(due_us(last).cast_signed() + beyond),
            Pass::Back(us) => now_us - us,
        };
        // Recorded time may stand still, and must stay in range.
        next.min((1 << 52) - 1)
    }
}

fn due_us(last: &Outcomes) -> u64 {
    let Some(outcome) = last.each.first() else {
        return 0;
    };
    match outcome.report.retry_after {
        RetryAfter::In(us) => us,
        RetryAfter::Now if outcome.report.remaining % 2 == 0 => outcome.report.reset_after_us,
        RetryAfter::Now | RetryAfter::Never => outcome.report.next_after_us,
    }
}

/// One batch as the model sees it.
struct Step {
    now_us: u64,
    requests: Vec<Charges>,
    expected: Vec<Outcomes>,
}

fn modelled(sequence: &Sequence, case: u64) -> Vec<Step> {
    let (mut model, mut now_us, mut last) = (Model::default(), START_US, Outcomes::default());
    let mut steps = Vec::new();
    for (pass, batch) in &sequence.batches {
        now_us = sequence.moved(now_us, pass, &last);
        let requests: Vec<_> = batch.iter().map(|asked| sequence.charges(asked, case)).collect();
        let expected: Vec<_> = requests.iter().map(|charges| model.decide(charges, now_us)).collect();
        last = expected.last().cloned().unwrap_or_default();
        steps.push(Step { now_us, requests, expected });
    }
    steps
}

struct Twins {
    redis: Redis,
    runtime: Runtime,
    timeline: RefCell<Timeline>,
}

impl Twins {
    fn start() -> Self {
        let redis = Redis::start();
        let runtime = Runtime::new().expect("a runtime");
        let options = RedisOptions { url: redis.url(), ..RedisOptions::default() };
        let timeline = runtime.block_on(Timeline::connect(&options)).expect("Redis is there");
        Self { redis, runtime, timeline: RefCell::new(timeline) }
    }

    fn agree(&self, steps: &[Step]) -> Result<(), TestCaseError> {
        let asked: Vec<Vec<&Charges>> = steps.iter().map(|step| step.requests.iter().collect()).collect();
        let moments: Vec<_> = steps
            .iter()
            .zip(&asked)
            .map(|(step, requests)| Moment { now_us: step.now_us, requests })
            .collect();
        let decided = self.runtime.block_on(self.timeline.borrow_mut().decide(&moments));
        for (step, decided) in steps.iter().zip(decided.expect("Redis decides")) {
            for ((charges, expected), decided) in step.requests.iter().zip(&step.expected).zip(decided) {
                prop_assert_eq!(&decided, expected, "at {} for {:?}", step.now_us, charges);
            }
        }
        Ok(())
    }
}

fn compare(kernels: impl Strategy<Value = Kernel>) {
    let (twins, cases) = (Twins::start(), AtomicU64::new(0));
    let mut runner = TestRunner::new(Config { source_file: Some(file!()), ..Config::default() });
    let result = runner.run(&sequence(kernels), |sequence| {
        twins.agree(&modelled(&sequence, cases.fetch_add(1, Ordering::Relaxed)))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert_ttls(&twins.redis);
}

/// Whatever the sequences left behind goes away by itself.
fn assert_ttls(redis: &Redis) {
    let keys: Vec<String> = redis.run(&["KEYS", "*"]).expect("KEYS");
    assert!(!keys.is_empty());
    for key in keys {
        let ttl_ms: i64 = redis.run(&["PTTL", &key]).expect("PTTL");
        assert!(ttl_ms > 0, "{key} has no TTL");
    }
}

#[test]
fn script_and_engine_agree_on_small_numbers() {
    compare(kernel(0..12_u64, 1..=40_u64));
}

#[test]
fn script_and_engine_agree_on_everyday_numbers() {
    let unit_us = prop_oneof![Just(1_u64), Just(60), Just(3_600), Just(86_400)];
    compare(kernel(0..100_000_u64, unit_us.prop_map(|seconds| seconds * 1_000_000)));
}

#[test]
fn script_and_engine_agree_on_the_largest_numbers() {
    let limit = prop_oneof![Just(u64::from(u32::MAX)), 1..=u64::from(u32::MAX), 1..1_000_u64];
    let length_us = prop_oneof![Just(LONGEST_US), 1..=LONGEST_US, LONGEST_US - 1_000..=LONGEST_US];
    compare(kernel(limit, length_us));
}

/// The least u for which `factor * u` is one more than a multiple of `modulus`.
fn inverse(factor: u64, modulus: u64) -> u64 {
    let (mut r, mut next_r) = (i128::from(modulus), i128::from(factor));
    let (mut u, mut next_u) = (0_i128, 1_i128);
    while next_r > 0 {
        let quotient = r / next_r;
        (r, next_r) = (next_r, r - quotient * next_r);
        (u, next_u) = (next_u, u - quotient * next_u);
    }
    u64::try_from(u.rem_euclid(i128::from(modulus))).expect("below the modulus")
}

/// `previous * uncovered` exceeds `room * window` by exactly one, far beyond 2^53: a double does not see it.
#[test]
fn products_are_compared_exactly_however_large() {
    let twins = Twins::start();
    for (case, previous) in [7_919, 1_000_003, 4_294_967_291].into_iter().enumerate() {
        let uncovered_us = inverse(previous, LONGEST_US);
        let product = u128::from(previous) * u128::from(uncovered_us);
        let room = u64::try_from(product / u128::from(LONGEST_US)).expect("below the count");
        let limit = u64::from(u32::MAX);
        let kernel = Kernel::SlidingWindow(SlidingWindow { limit, window_us: LONGEST_US });
        let request = |cost| {
            let mut charges = Charges::default();
            let charge = Charge {
                key: 0..0,
                kernel,
                cost,
                charging: Charging::Prepaid,
                role: Role::Enforce,
                on_store_failure: FailurePolicy::default(),
            };
            charges.push(charge, |key| key.push_str(&format!("exact/{case}")));
            charges
        };
        let window_start_us = (START_US / LONGEST_US + 1) * LONGEST_US;
        let at_us = window_start_us + LONGEST_US - uncovered_us;
        let asked = [
            (window_start_us - 1, Cost::take(previous)),
            (at_us, Cost::take(limit - room)),
            (at_us + 1, Cost::take(limit - room)),
        ];
        let mut model = Model::default();
        let steps = asked.map(|(now_us, cost)| {
            let requests = vec![request(cost)];
            let expected = vec![model.decide(&requests[0], now_us)];
            Step { now_us, requests, expected }
        });
        let verdicts = steps.each_ref().map(|step| step.expected[0].each[0].verdict);
        assert_eq!(verdicts, [Verdict::Fits, Verdict::Over, Verdict::Fits]);
        twins.agree(&steps).unwrap_or_else(|difference| panic!("{difference}"));
    }
}
