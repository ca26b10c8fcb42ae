//! Limits of one counter whose emission intervals have different fractions, in one batch: plans of customers (tiers)
//! that share a counter, and the requests around a reload. A fraction of another denominator is another instant.

use engine::Pacing;
use engine::algorithm::Gcra;
use proptest::collection::vec;

use super::*;

/// Requests of one batch to one counter: which of the limits, and which part of the largest cost. 0 is a peek, and a
/// negative number a refund.
type Batch = Vec<(usize, i32)>;

fn cost(kernel: &Kernel, percent: i32) -> Cost {
    let units = kernel.max_cost() * u64::from(percent.unsigned_abs()) / 100 + 1;
    match percent {
        0 => Cost::PEEK,
        1.. => Cost::take(units),
        _ => Cost::refund(units),
    }
}

fn steps(kernels: &[Kernel], batches: &[(u64, Batch)], case: u64) -> Vec<Step> {
    let (mut model, mut now_us, key) = (Model::default(), START_US, format!("denominators/{case}"));
    let step = |(later_us, batch): &(u64, Batch)| {
        now_us += later_us;
        let request = |&(limit, percent): &(usize, i32)| {
            let kernel = kernels[limit % kernels.len()];
            one_charge(kernel, &key, cost(&kernel, percent))
        };
        let requests: Vec<Charges> = batch.iter().map(request).collect();
        let expected = requests.iter().map(|request| model.decide(request, now_us)).collect();
        Step { now_us, requests, expected }
    };
    batches.iter().map(step).collect()
}

#[test]
fn script_and_engine_agree_on_limits_with_other_fractions_in_one_batch() {
    let limit = (1..9_u64, 1..9_u64)
        .prop_map(|(limit, burst)| Kernel::Gcra(Gcra::new(limit, 35, burst, Pacing::Meter)));
    let batch = vec((0..3_usize, prop_oneof![4 => 1..60_i32, 1 => Just(0), 1 => -40..0_i32]), 1..8);
    let cases = (vec(limit, 3), vec((0..40_u64, batch), 1..30));
    let (fixture, case) = (Fixture::start(), AtomicU64::new(0));
    let result = properties::runner(file!()).run(&cases, |(kernels, batches)| {
        fixture.check_steps(&steps(&kernels, &batches, case.fetch_add(1, Ordering::Relaxed)))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert_ttls(&fixture.redis);
}
