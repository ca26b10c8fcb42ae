//! A cluster gives the same answers as one memory store, for requests over any number of slots.

use std::cell::Cell;

use ::store::clock::SystemClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use ::store::redis::RedisStore;
use engine::algorithm::{Blocked, Kernel};
use engine::{Charges, Outcomes, Store, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::cluster_store;
use crate::redis::kernels;
use crate::redis::lua_twin::sequence::RandomCharge;
use crate::redis::lua_twin::strategies::{only_charge, random_charge};
use crate::support::properties;
use crate::support::redis::cluster::Cluster;
use crate::support::wait;

/// The number of counters in a case. The first two share a slot.
const COUNTERS: usize = 6;

/// A kernel that frees no unit during a test.
fn kernel() -> impl Strategy<Value = Kernel> {
    prop_oneof![
        12 => (1..40_u64).prop_flat_map(|limit| select(kernels(limit).map(|(_, kernel)| kernel).to_vec())),
        1 => Just(Kernel::Blocked(Blocked::new(60_000_000))),
    ]
}

fn charges(random_charges: &[RandomCharge], kernels: &[Kernel], case: u64) -> Charges {
    let mut charges = Charges::default();
    for random in random_charges {
        let tag = random.counter.max(1);
        let charge = random.charge(kernels[random.counter]);
        charges.push(charge, |key| key.push_str(&format!("{{{case}/{tag}}}{}", random.counter)));
    }
    charges
}

/// The parts of outcomes that do not depend on the time.
fn verdicts_and_remaining(outcomes: &Outcomes) -> Vec<(Verdict, u64)> {
    outcomes.by_charge.iter().map(|outcome| (outcome.verdict, outcome.report.remaining)).collect()
}

async fn compare_with_memory(
    store: &RedisStore,
    requests: &[Vec<RandomCharge>],
    kernels: &[Kernel],
    case: u64,
) -> Result<(), TestCaseError> {
    let memory = MemoryStore::new(MemoryOptions::default(), SystemClock);
    let now_us = wait::unix_seconds() * 1_000_000;
    for request in requests {
        let charges = charges(request, kernels, case);
        let decided = store.decide(&charges).await.expect("the cluster decides");
        prop_assert_eq!(
            verdicts_and_remaining(&decided),
            verdicts_and_remaining(&memory.decide_at(&charges, now_us)),
            "{:?}",
            charges
        );
    }
    Ok(())
}

#[test]
fn a_cluster_answers_like_one_memory_store() {
    let (cluster, cases) = (Cluster::start(), Cell::new(0));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = runtime.block_on(async { cluster_store(&cluster) });
    let request = prop_oneof![vec(only_charge(COUNTERS), 1), vec(random_charge(COUNTERS), 2..5)];
    let requests = vec(request, 1..25);
    let mut runner = properties::runner(file!());
    let result = runner.run(&(vec(kernel(), COUNTERS), requests), |(kernels, requests)| {
        cases.set(cases.get() + 1);
        runtime.block_on(compare_with_memory(&store, &requests, &kernels, cases.get()))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
