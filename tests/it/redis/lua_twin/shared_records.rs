//! Requests of one batch that differ only in their keys share a record of the script's argument. They get the answers
//! of the engine, and leave the counters that requests in batches of their own leave.

use ::base::clock::monotonic;
use engine::Pacing;
use engine::algorithm::{FixedWindow, Gcra};
use proptest::collection::vec;
use proptest::sample::subsequence;

use super::equal_charges::{assert_same_counters, counters};
use super::sequence::{RandomCharge, RandomRequest, TimeStep};
use super::strategies::{changes, random_charge, time_step};
use super::*;

/// How many callers a batch can have. Each has its own counters.
const CALLERS: u64 = 12;

/// Batches of requests, each with the number of its caller.
#[derive(Clone, Debug)]
struct Callers {
    /// The kernels of the counters. Its batches are not used.
    counters: Sequence,
    batches: Vec<(TimeStep, Vec<(u64, RandomRequest)>)>,
}

/// A request with charges to different counters.
fn request() -> impl Strategy<Value = RandomRequest> {
    let charges = subsequence(vec![0, 1, 2, 3], 1..=4).prop_flat_map(|counters| {
        vec(random_charge(1), counters.len()).prop_map(move |charges| {
            let to = |(charge, &counter): (RandomCharge, &usize)| RandomCharge { counter, ..charge };
            charges.into_iter().zip(&counters).map(to).collect()
        })
    });
    (charges, prop_oneof![9 => Just(false), 1 => Just(true)])
}

/// Requests of different callers, in runs of equal ones or mixed.
fn batch(requests: Vec<RandomRequest>) -> impl Strategy<Value = Vec<(u64, RandomRequest)>> {
    let callers = Just((0..CALLERS).collect::<Vec<_>>()).prop_shuffle();
    let runs = vec((0..requests.len(), 1..12_usize), 1..4)
        .prop_map(|runs| runs.into_iter().flat_map(|(request, number)| vec![request; number]).collect());
    let mixed = vec(0..requests.len(), 1..20);
    (callers, prop_oneof![runs, mixed]).prop_map(move |(callers, order): (_, Vec<usize>)| {
        callers.into_iter().zip(order.into_iter().map(|index| requests[index].clone())).collect()
    })
}

fn callers(kernels: impl Strategy<Value = Kernel>, most: usize) -> impl Strategy<Value = Callers> {
    let batches =
        vec(request(), 1..4).prop_flat_map(move |requests| vec((time_step(), batch(requests)), 1..most));
    (vec(kernels, 4), changes(most), batches).prop_map(|(kernels, changes, batches)| Callers {
        counters: Sequence { kernels, changes, batches: Vec::new() },
        batches,
    })
}

impl Callers {
    /// The batches and the answers of the model.
    fn steps(&self, case: u64) -> Vec<Step> {
        let (mut model, mut now_us, mut last) = (Model::default(), START_US, Outcomes::default());
        let mut steps = Vec::new();
        for (index, (time_step, batch)) in self.batches.iter().enumerate() {
            now_us = self.counters.time_after(now_us, time_step, &last);
            let charges = |(caller, request): &(u64, RandomRequest)| {
                self.counters.charges(request, case * CALLERS + caller, index, &Grants::default())
            };
            let requests: Vec<_> = batch.iter().map(charges).collect();
            let expected: Vec<_> = requests.iter().map(|charges| model.decide(charges, now_us)).collect();
            last = expected.last().cloned().unwrap_or_default();
            steps.push(Step { now_us, requests, expected });
        }
        steps
    }
}

/// The same requests, each in a batch of its own.
fn one_by_one(steps: Vec<Step>) -> Vec<Step> {
    let alone = |Step { now_us, requests, expected }| {
        let pairs = requests.into_iter().zip(expected);
        pairs.map(move |(request, expected)| Step {
            now_us,
            requests: vec![request],
            expected: vec![expected],
        })
    };
    steps.into_iter().flat_map(alone).collect()
}

/// Decides the requests twice, the second time one by one, and compares the answers and what is in Redis then.
fn compare_callers(fixture: &Fixture, callers: &Callers, case: u64) -> Result<(), TestCaseError> {
    let started = monotonic();
    fixture.check_steps(&callers.steps(2 * case))?;
    fixture.check_steps(&one_by_one(callers.steps(2 * case + 1)))?;
    let stored = |case| counters(fixture, case * CALLERS..(case + 1) * CALLERS);
    assert_same_counters(&stored(2 * case), &stored(2 * case + 1), started)
}

fn compare_kernels(kernels: impl Strategy<Value = Kernel>, most: usize) {
    let (fixture, cases) = (Fixture::start(), AtomicU64::new(0));
    let mut runner = properties::runner(file!());
    let result = runner.run(&callers(kernels, most), |callers| {
        compare_callers(&fixture, &callers, cases.fetch_add(1, Ordering::Relaxed))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn requests_that_share_a_record_are_decided_as_one_by_one_for_small_limits() {
    compare_kernels(small(), 16);
}

#[test]
fn requests_that_share_a_record_are_decided_as_one_by_one_for_everyday_limits() {
    compare_kernels(everyday(), 8);
}

/// What is stored under each of these keys cannot come from the limit, so it counts as missing.
#[test]
fn requests_that_share_a_record_do_not_take_foreign_values_for_counters() {
    let kernels = [
        Kernel::FixedWindow(FixedWindow::new(3, 60_000_000)),
        Kernel::Gcra(Gcra::new(60, 60_000_000, 3, Pacing::Meter)),
        Kernel::Gcra(Gcra::new(7, 60_000_000, 3, Pacing::Meter)),
    ];
    let next_second = START_US as f64 + 1_000_000.0;
    let out_of_range = [-1.0, next_second + 0.5, f64::NAN, f64::INFINITY, 9_007_199_254_740_992.0];
    let too_long = [next_second.to_le_bytes().as_slice(), &[0]].concat();
    let texts = [Vec::new(), vec![1; 7], too_long].into_iter();
    let texts: Vec<_> = texts.chain(out_of_range.map(|number| number.to_le_bytes().to_vec())).collect();
    let (fixture, prefix) = (Fixture::start(), RedisOptions::default().key_prefix);
    for kernel in kernels {
        let key = |number: usize| format!("foreign/{kernel}/{number}");
        for (number, text) in texts.iter().enumerate() {
            let mut set = redis::cmd("SET");
            set.arg(format!("{prefix}{}", key(number))).arg(text).arg("PX").arg(1_000_000);
            set.exec(&mut *fixture.connection.borrow_mut()).expect("Redis stores it");
        }
        let mut model = Model::default();
        let steps = [START_US, START_US + 1, START_US + 2].map(|now_us| {
            let requests: Vec<_> =
                (0..texts.len()).map(|number| one_charge(kernel, &key(number), Cost::take(2))).collect();
            let expected = requests.iter().map(|charges| model.decide(charges, now_us)).collect();
            Step { now_us, requests, expected }
        });
        fixture.check_steps(&steps).unwrap_or_else(|difference| panic!("{difference}"));
    }
}
