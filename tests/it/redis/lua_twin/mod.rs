//! The script and the engine give equal answers, in every number, to the same requests at the same times. The model
//! below decides with the engine; Redis decides the same sequence through [`ReplayClient`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ::store::redis::{RedisOptions, ReplayClient, TimedBatch};
use engine::algorithm::{Attempt, Kernel, SlidingLog, SlidingWindow, State};
use engine::{
    Algorithm, Charge, Charges, Charging, Cost, CounterSnapshot, DecidedBy, Outcome, Outcomes, Verdict,
};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::redis::one_charge;
use crate::support::properties;
use crate::support::redis::{Redis, parsed};
use observable::observable;
use sequence::{Grants, LONGEST_US, START_US, Sequence};
use strategies::{everyday, largest, sequence, small};

mod calendars;
mod denominators;
mod equal_charges;
mod observable;
mod rows;
pub(crate) mod sequence;
mod shared_records;
pub(crate) mod strategies;
mod undos;

/// The engine's decisions, on states in a map without expiry.
#[derive(Default)]
struct Model {
    states: HashMap<String, State>,
}

impl Model {
    fn decide(&mut self, charges: &Charges, now_us: u64) -> Outcomes {
        let (mut verdicts, mut outcomes) = (Vec::new(), Vec::new());
        for (key, charge) in charges.iter() {
            let verdict = charge.kernel.verdict(self.states.get(key), Attempt { now_us, cost: charge.cost });
            let is_final = charge.is_independent();
            verdicts.push(verdict);
            outcomes.push(is_final.then(|| self.finish(key, charge, verdict, (now_us, false))));
        }
        let is_denied = charges.is_denied(|index| verdicts[index] == Verdict::Over);
        for (index, (key, charge)) in charges.iter().enumerate() {
            outcomes[index]
                .get_or_insert_with(|| self.finish(key, charge, verdicts[index], (now_us, is_denied)));
        }
        outcomes.into_iter().flatten().collect()
    }

    /// Records a charge with this verdict, if it is to be recorded, and reports.
    fn finish(
        &mut self,
        key: &str,
        charge: &Charge,
        verdict: Verdict,
        (now_us, is_denied): (u64, bool),
    ) -> Outcome {
        let attempt = Attempt { now_us, cost: charge.cost };
        let is_changed = charge.kernel.is_changed_by(self.states.get(key), attempt);
        if charge.is_recorded(verdict, is_denied) && is_changed {
            match charge.kernel.recorded(self.states.get(key).cloned(), attempt) {
                Some(after) if charge.kernel.unused_from_us(&after) > now_us => {
                    self.states.insert(key.to_owned(), after);
                }
                // A counter that a refund has emptied is not kept, so that a step back of the clock does not find it.
                Some(_) => drop(self.states.remove(key)),
                // The kernel has no counter. The key may have one of another number.
                None => {}
            }
        }
        let reading = charge.kernel.reading(self.states.get(key), attempt);
        let report = charge.kernel.report(&reading, attempt, verdict);
        Outcome { verdict, report, decided_by: DecidedBy::Store(CounterSnapshot { now_us, reading }) }
    }
}

/// One batch and the answers of the model.
struct Step {
    now_us: u64,
    requests: Vec<Charges>,
    expected: Vec<Outcomes>,
}

fn expected_steps(sequence: &Sequence, case: u64) -> Vec<Step> {
    let (mut model, mut now_us, mut last) = (Model::default(), START_US, Outcomes::default());
    let (mut grants, mut steps) = (Grants::default(), Vec::new());
    for (index, (time_step, batch)) in sequence.batches.iter().enumerate() {
        now_us = sequence.time_after(now_us, time_step, &last);
        let decide = |request| {
            let charges = sequence.charges(request, case, index, &grants);
            let outcomes = model.decide(&charges, now_us);
            grants.add(&charges, &outcomes);
            (charges, outcomes)
        };
        let (requests, expected): (Vec<_>, Vec<_>) = batch.iter().map(decide).unzip();
        last = expected.last().cloned().unwrap_or_default();
        steps.push(Step { now_us, requests, expected });
    }
    steps
}

struct Fixture {
    redis: Redis,
    runtime: Runtime,
    client: RefCell<ReplayClient>,
    connection: RefCell<redis::Connection>,
}

impl Fixture {
    fn start() -> Self {
        let redis = Redis::start();
        let runtime = Runtime::new().expect("a runtime");
        let options = RedisOptions { urls: parsed([redis.url()]), ..RedisOptions::default() };
        let client = runtime.block_on(ReplayClient::connect(&options)).expect("Redis answers");
        let connection = redis::Client::open(redis.url()).and_then(|client| client.get_connection());
        let connection = RefCell::new(connection.expect("Redis listens"));
        Self { redis, runtime, client: RefCell::new(client), connection }
    }

    fn check_steps(&self, steps: &[Step]) -> Result<(), TestCaseError> {
        let requests: Vec<Vec<&Charges>> = steps.iter().map(|step| step.requests.iter().collect()).collect();
        let batches: Vec<_> = steps
            .iter()
            .zip(&requests)
            .map(|(step, requests)| TimedBatch { now_us: step.now_us, requests })
            .collect();
        let decided = self.runtime.block_on(self.client.borrow_mut().decide(&batches));
        for (step, decided) in steps.iter().zip(decided.expect("Redis decides")) {
            for ((charges, expected), decided) in step.requests.iter().zip(&step.expected).zip(decided) {
                let (decided, expected) = (observable(charges, &decided), observable(charges, expected));
                prop_assert_eq!(decided, expected, "at {} for {:?}", step.now_us, charges);
            }
        }
        Ok(())
    }
}

fn compare(kernels: impl Strategy<Value = Kernel>) {
    let (fixture, cases) = (Fixture::start(), AtomicU64::new(0));
    let mut runner = properties::runner(file!());
    let result = runner.run(&sequence(kernels), |sequence| {
        fixture.check_steps(&expected_steps(&sequence, cases.fetch_add(1, Ordering::Relaxed)))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert_ttls(&fixture.redis);
}

/// Every key in Redis has a TTL.
pub(crate) fn assert_ttls(redis: &Redis) {
    let keys: Vec<String> = redis.run(&["KEYS", "*"]).expect("KEYS");
    assert!(!keys.is_empty());
    for key in keys {
        let ttl_ms: i64 = redis.run(&["PTTL", &key]).expect("PTTL");
        assert!(ttl_ms > 0, "{key} has no TTL");
    }
}

/// A log that is full keeps its entries, and those that had expired count again when the clock steps back.
#[test]
fn a_full_log_that_records_nothing_stays_as_it_is() {
    let fixture = Fixture::start();
    for (case, expired) in [1, 2, 3, 5].into_iter().enumerate() {
        let log = |limit| Kernel::SlidingLog(SlidingLog::new(limit, 100));
        let debt = expired + 1;
        let mut attempts: Vec<_> = (0..expired).map(|at_us| (at_us, 8, Cost::take(1))).collect();
        attempts.push((50, 8, Cost::take(debt)));
        // The limit is now so low that half of what is left is a debt. Nothing more is recorded.
        attempts.extend([(120, debt / 2, Cost::take(1)), (90, 8, Cost::PEEK), (99, 8, Cost::take(1))]);
        let mut model = Model::default();
        let steps: Vec<_> = attempts
            .into_iter()
            .map(|(after_us, limit, cost)| {
                let now_us = START_US + after_us;
                let mut request = Charges::default();
                let charge = one_charge(log(limit), "", cost).charge(0).clone();
                let charge = Charge { charging: Charging::Postpaid, ..charge };
                request.push(charge, |key| key.push_str(&format!("full log/{case}")));
                let expected = vec![model.decide(&request, now_us)];
                Step { now_us, requests: vec![request], expected }
            })
            .collect();
        let peek = steps[steps.len() - 2].expected[0].by_charge[0];
        assert_eq!(peek.report.remaining, 8_u64.saturating_sub(expired + debt), "{expired} expired");
        fixture.check_steps(&steps).unwrap_or_else(|difference| panic!("{difference}"));
    }
}

#[test]
fn script_and_engine_agree_on_small_numbers() {
    compare(small());
}

#[test]
fn script_and_engine_agree_on_everyday_numbers() {
    compare(everyday());
}

#[test]
fn script_and_engine_agree_on_the_largest_numbers() {
    compare(largest());
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

/// Counts without a common divisor with [`LONGEST_US`].
const LARGE_COUNTS: [u64; 4] = [7_919, 1_000_003, 4_294_967_291, (1 << 46) - 21];

/// `previous * uncovered_us` is `room * LONGEST_US + 1`. Both products are far above 2^53, so a double cannot represent
/// the difference of 1.
#[test]
fn products_of_any_size_are_compared_exactly() {
    let fixture = Fixture::start();
    for (case, previous) in LARGE_COUNTS.into_iter().enumerate() {
        let uncovered_us = inverse(previous, LONGEST_US);
        let product = u128::from(previous) * u128::from(uncovered_us);
        let room = u64::try_from(product / u128::from(LONGEST_US)).expect("below the count");
        let limit = Algorithm::SlidingWindow.max_limit();
        let kernel = Kernel::SlidingWindow(SlidingWindow::new(limit, LONGEST_US));
        let request = |cost| one_charge(kernel, &format!("exact/{case}"), cost);
        let window_start_us = (START_US / LONGEST_US + 1) * LONGEST_US;
        let at_us = window_start_us + LONGEST_US - uncovered_us;
        let attempts = [
            (window_start_us - 1, Cost::take(previous)),
            (at_us, Cost::take(limit - room)),
            (at_us + 1, Cost::take(limit - room)),
        ];
        let mut model = Model::default();
        let steps = attempts.map(|(now_us, cost)| {
            let requests = vec![request(cost)];
            let expected = vec![model.decide(&requests[0], now_us)];
            Step { now_us, requests, expected }
        });
        let verdicts = steps.each_ref().map(|step| step.expected[0].by_charge[0].verdict);
        assert_eq!(verdicts, [Verdict::Fits, Verdict::Over, Verdict::Fits]);
        fixture.check_steps(&steps).unwrap_or_else(|difference| panic!("{difference}"));
    }
}
