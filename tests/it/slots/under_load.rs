//! What a limit of slots admits over a long time in which releases and answers are lost.

use ::base::clock::SystemClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::algorithm::{Kernel, Slots};
use engine::{Charge, Charges, Charging, Cost, FailurePolicy, Grant, Role, Verdict};
use fastrand::Rng;

use crate::settle::T0;

const LIMIT: u64 = 20;
const HOLD_US: u64 = 600_000_000;
/// Half of the slots are in use in the mean.
const MEAN_GAP_US: f64 = 1e6;
const MEAN_LENGTH_US: f64 = 10e6;

fn charges(cost: Cost) -> Charges {
    let role = if cost.is_refund() { Role::Settle } else { Role::Enforce };
    let charging = if cost.is_refund() { Charging::Postpaid } else { Charging::Prepaid };
    let kernel = Kernel::Slots(Slots::new(LIMIT, HOLD_US));
    let mut charges = Charges::default();
    let charge = Charge { kernel, cost, charging, role, on_store_failure: FailurePolicy::Error };
    charges.push(charge, |key| key.push_str("{d|tenant=a}#co"));
    charges
}

#[test]
fn lost_releases_and_answers_cost_few_slots() {
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    let mut random = Rng::with_seed(5);
    let mut exponential = |mean: f64| (-(1.0 - random.f64()).ln() * mean) as u64;
    // End of each stream, and the time at which its slot is released; `None` if the release is lost.
    let mut streams: Vec<(u64, u64, Option<u64>)> = Vec::new();
    let (mut now_us, end_us, mut lost_slots, mut requests) = (T0, T0 + 40_000_000_000, 0.0, 0_u64);
    let mut coin = Rng::with_seed(7);
    while now_us < end_us {
        now_us += exponential(MEAN_GAP_US);
        for (stream_end_us, id, release) in &mut streams {
            if release.is_some_and(|at_us| at_us <= now_us) {
                let at_us = release.take().expect("a release").max(*stream_end_us);
                let undo = Cost::undo(1, Grant { id: *id, limit: None });
                assert!(!store.decide_at(&charges(undo), at_us.min(now_us)).is_over(0));
            }
        }
        streams.retain(|&(stream_end_us, _, release)| stream_end_us > now_us || release.is_some());
        requests += 1;
        let outcome = store.decide_at(&charges(Cost::slot(requests)), now_us).by_charge[0];
        // Without the one just taken.
        let taken = u64::from(outcome.verdict == Verdict::Fits);
        let open = LIMIT - outcome.report.remaining - taken;
        lost_slots += open as f64 - streams.iter().filter(|(end, ..)| *end > now_us).count() as f64;
        if outcome.verdict == Verdict::Over {
            continue;
        }
        let length_us = exponential(MEAN_LENGTH_US);
        let is_unanswered = coin.f64() < 0.01;
        let stream_end_us = if is_unanswered { now_us } else { now_us + length_us };
        // The service releases an unanswered take a second later.
        let released_us = if is_unanswered { now_us + 1_000_000 } else { stream_end_us };
        streams.push((stream_end_us, requests, (coin.f64() >= 0.002).then_some(released_us)));
        let running = streams.iter().filter(|(end, ..)| *end > now_us).count() as u64;
        assert!(running <= LIMIT, "{running} at once");
    }
    let mean = lost_slots / requests as f64;
    assert!(mean <= 2.0, "{mean} slots are lost in the mean");
}
