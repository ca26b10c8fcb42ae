//! Charges leave the same counters, with the same expiry, in whatever way they are decided: equal charges of one batch
//! together or one by one, and a charge alone or in a batch.

use std::ops::Range;
use std::time::Instant;

use ::base::clock::monotonic;
use engine::algorithm::Gcra;
use engine::{Charging, Pacing, Role};

use super::sequence::{Amount, RandomCharge, RandomRequest};
use super::strategies::{crowd, of_batches, random_charge};
use super::*;

/// The same sequence with a peek before each request, so that no two equal charges are next to each other. A peek
/// changes nothing.
fn with_peeks(sequence: &Sequence) -> Sequence {
    let with_peek = |request: &RandomRequest| {
        let counter = request.0[0].counter;
        let peek =
            RandomCharge { counter, amount: Amount::Peek, charging: Charging::Prepaid, role: Role::Enforce };
        [(vec![peek], false), request.clone()]
    };
    let batches = sequence
        .batches
        .iter()
        .map(|(step, batch)| (step.clone(), batch.iter().flat_map(with_peek).collect()));
    Sequence { batches: batches.collect(), ..sequence.clone() }
}

/// What Redis has of a counter: its state, and the time in milliseconds after which it expires.
pub(super) type StoredCounter = (Option<Vec<u8>>, i64);

/// The counters of these cases.
pub(super) fn counters(fixture: &Fixture, cases: Range<u64>) -> Vec<StoredCounter> {
    let prefix = RedisOptions::default().key_prefix;
    let mut reads = redis::pipe();
    for key in cases.flat_map(|case| (0..4).map(move |counter| format!("{case}/{counter}"))) {
        let key = format!("{prefix}{key}");
        reads.cmd("DUMP").arg(&key).cmd("PTTL").arg(&key);
    }
    reads.query(&mut *fixture.connection.borrow_mut()).expect("a state and a number for each counter")
}

/// Decides the sequence twice, the second time one by one, and compares what is in Redis then.
fn compare_counters(fixture: &Fixture, sequence: &Sequence, case: u64) -> Result<(), TestCaseError> {
    let started = monotonic();
    fixture.check_steps(&expected_steps(sequence, 2 * case))?;
    fixture.check_steps(&expected_steps(&with_peeks(sequence), 2 * case + 1))?;
    let of = |case| counters(fixture, case..case + 1);
    let (together, apart) = (of(2 * case), of(2 * case + 1));
    assert_same_counters(&together, &apart, started)
}

/// Compares the counters of two cases, decided one after the other from `started` on. Expiry is in real time.
pub(super) fn assert_same_counters(
    together: &[StoredCounter],
    apart: &[StoredCounter],
    started: Instant,
) -> Result<(), TestCaseError> {
    let most_ms = i64::try_from(started.elapsed().as_millis()).expect("short") + 2;
    for ((state, ttl_ms), (state_apart, ttl_ms_apart)) in together.iter().zip(apart) {
        prop_assert_eq!(state, state_apart);
        prop_assert!((ttl_ms - ttl_ms_apart).abs() <= most_ms, "{together:?} {apart:?}");
    }
    Ok(())
}

#[test]
fn equal_charges_leave_what_charges_one_by_one_leave() {
    compare_all(of_batches(everyday(), crowd(), 4));
}

/// A charge alone has the plain script of its kernel, and with a peek before it the batch script.
#[test]
fn charges_leave_what_charges_in_a_batch_leave() {
    let alone = (random_charge(4), any::<bool>()).prop_map(|(charge, known)| vec![(vec![charge], known)]);
    compare_all(of_batches(everyday(), alone, 20));
}

fn compare_all(sequences: impl Strategy<Value = Sequence>) {
    let (fixture, cases) = (Fixture::start(), AtomicU64::new(0));
    let mut runner = properties::runner(file!());
    let result = runner.run(&sequences, |sequence| {
        compare_counters(&fixture, &sequence, cases.fetch_add(1, Ordering::Relaxed))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// Decides batches of takes on one counter, each batch at its time. Returns how many of the last batch fit.
fn fitting<const N: usize>(fixture: &Fixture, kernel: Kernel, batches: [(u64, Vec<u64>); N]) -> usize {
    let mut model = Model::default();
    let key = format!("exact/{kernel}");
    let steps = batches.map(|(now_us, costs)| {
        let requests: Vec<_> =
            costs.into_iter().map(|units| one_charge(kernel, &key, Cost::take(units))).collect();
        let expected = requests.iter().map(|charges| model.decide(charges, now_us)).collect();
        Step { now_us, requests, expected }
    });
    fixture.check_steps(&steps).unwrap_or_else(|difference| panic!("{difference}"));
    let fits = |outcomes: &&Outcomes| outcomes.by_charge[0].verdict == Verdict::Fits;
    steps[N - 1].expected.iter().filter(fits).count()
}

/// `previous * uncovered_us` is `room * LONGEST_US + 1`, as in `products_of_any_size_are_compared_exactly`: an estimate
/// in doubles is that one charge more fits.
#[test]
fn the_room_of_a_sliding_window_is_exact() {
    let fixture = Fixture::start();
    let limit = Algorithm::SlidingWindow.max_limit();
    for previous in LARGE_COUNTS {
        let uncovered_us = inverse(previous, LONGEST_US);
        let product = u128::from(previous) * u128::from(uncovered_us);
        let room = u64::try_from(product / u128::from(LONGEST_US)).expect("below the count");
        let window_start_us = (START_US / LONGEST_US + 1) * LONGEST_US;
        let at_us = window_start_us + LONGEST_US - uncovered_us;
        let batches =
            [(window_start_us - 1, vec![previous]), (at_us, vec![limit - room - 4]), (at_us, vec![1; 6])];
        let kernel = Kernel::SlidingWindow(SlidingWindow::new(limit, LONGEST_US));
        assert_eq!(fitting(&fixture, kernel, batches), 3);
        fixture.redis.run::<()>(&["FLUSHALL"]).expect("Redis answers");
    }
}

/// In parts of a microsecond, the room is one part less than five charges take: an estimate in doubles is that all five
/// fit.
#[test]
fn the_room_of_a_gcra_with_fractions_is_exact() {
    let fixture = Fixture::start();
    let (limit, units) = (4_294_967_291, 1_000);
    let kernel = Kernel::Gcra(Gcra::new(limit, LONGEST_US, limit, Pacing::Meter));
    // In this time `freed` units drain, but for one part.
    let elapsed_us = LONGEST_US - inverse(limit, LONGEST_US);
    let parts = u128::from(elapsed_us) * u128::from(limit) + 1;
    assert_eq!(parts % u128::from(LONGEST_US), 0);
    let freed = u64::try_from(parts / u128::from(LONGEST_US)).expect("below the limit");
    let at_us = START_US + elapsed_us;
    let batches = [(START_US, vec![limit]), (at_us, vec![freed - 5 * units]), (at_us, vec![units; 7])];
    assert_eq!(fitting(&fixture, kernel, batches), 4);
}
