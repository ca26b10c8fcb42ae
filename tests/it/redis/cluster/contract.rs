//! A cluster gives the answers of one memory store, for all requests over any number of slots.

use std::cell::Cell;

use proptest::collection::vec;
use proptest::prelude::*;
use ratelimitd::clock::SystemClock;
use ratelimitd::engine::algorithm::{Blocked, Kernel};
use ratelimitd::engine::{Charges, Outcomes, Store, Verdict};
use ratelimitd::store::memory::{MemoryOptions, MemoryStore};
use ratelimitd::store::redis::RedisStore;

use super::clustered;
use crate::redis::kernels;
use crate::redis::lua_twin::sequence::{Asked, asked};
use crate::support::properties;
use crate::support::redis::cluster::Cluster;
use crate::support::wait;

/// How many counters the requests of a case are about. The first two share a slot.
const COUNTERS: usize = 6;

/// One of those whose time does not come back during a test.
fn kernel() -> impl Strategy<Value = Kernel> {
    prop_oneof![
        12 => (1..40_u64, 0..6_usize).prop_map(|(limit, which)| kernels(limit)[which].1),
        1 => Just(Kernel::Blocked(Blocked)),
    ]
}

fn charges(asked: &[Asked], kernels: &[Kernel], case: u64) -> Charges {
    let mut charges = Charges::default();
    for asked in asked {
        let tag = asked.counter.max(1);
        let charge = asked.charge(kernels[asked.counter]);
        charges.push(charge, |key| key.push_str(&format!("{{{case}/{tag}}}{}", asked.counter)));
    }
    charges
}

/// What does not depend on the instant.
fn seen(outcomes: &Outcomes) -> Vec<(Verdict, u64)> {
    outcomes.decided().map(|outcome| (outcome.verdict, outcome.report.remaining)).collect()
}

async fn agree(
    store: &RedisStore,
    requests: &[Vec<Asked>],
    kernels: &[Kernel],
    case: u64,
) -> Result<(), TestCaseError> {
    let memory = MemoryStore::new(MemoryOptions::default(), SystemClock);
    let now_us = wait::unix_seconds() * 1_000_000;
    for asked in requests {
        let charges = charges(asked, kernels, case);
        let decided = store.decide(&charges).await.expect("the cluster decides");
        prop_assert_eq!(seen(&decided), seen(&memory.decide_at(&charges, now_us)), "{:?}", charges);
    }
    Ok(())
}

#[test]
fn a_cluster_answers_as_one_memory_would() {
    let (cluster, cases) = (Cluster::start(), Cell::new(0));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let store = runtime.block_on(async { clustered(&cluster) });
    let requests = vec(vec(asked(COUNTERS), 1..5), 1..25);
    let mut runner = properties::runner(file!());
    let told = runner.run(&(vec(kernel(), COUNTERS), requests), |(kernels, requests)| {
        cases.set(cases.get() + 1);
        runtime.block_on(agree(&store, &requests, &kernels, cases.get()))
    });
    if let Err(failure) = told {
        panic!("{failure}");
    }
}
