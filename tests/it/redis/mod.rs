//! The tests that need a redis-server, or the Valkey that `RATELIMITD_TEST_REDIS` names: the store alone, in a cluster
//! and with sentinels, the script against the engine, the served process, and outages.

use std::sync::Arc;
use std::time::Duration;

use ::store::observer::NoopObserver;
use ::store::redis::{RedisOptions, RedisStore};
use engine::algorithm::{
    CalendarWindow, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow,
};
use engine::{
    Charge, Charges, Charging, Cost, FailurePolicy, Outcome, Pacing, Role, Store, StoreError, Verdict,
};
use futures_util::future::join_all;

use crate::support::redis::parsed;

mod admission;
mod browser;
mod calendar;
mod certain_denials;
mod cluster;
mod compose_image;
mod conformance;
mod deny_cache;
mod distance;
mod drop_in;
mod envoy_image;
mod exceptions;
mod fleet;
mod holds;
mod leases;
mod ledger;
mod list_commands;
pub(crate) mod lua_twin;
mod metrics;
mod migrated_counters;
mod notify;
mod outage;
mod pauses;
mod per_second;
mod recipes;
mod regions;
mod replaced_counters;
mod replay;
mod row_stories;
mod rows;
mod scripts;
mod secrets;
mod security;
mod sentinel;
mod service;
mod settle;
mod shared_limits;
mod slots;
mod soft_limits;
mod store;
mod stored_counters;
mod stories;
mod usage;

const DAY_US: u64 = 86_400_000_000;

/// Options with a timeout that no decision exceeds, even on a busy machine.
fn patient_options(url: &str) -> RedisOptions {
    RedisOptions {
        urls: parsed([url]),
        key_prefix: "it:".to_owned(),
        timeout: Duration::from_secs(20),
        ..RedisOptions::default()
    }
}

fn store(options: &RedisOptions) -> RedisStore {
    RedisStore::new(options, Arc::new(NoopObserver)).expect("good options")
}

/// One kernel of each kind: the limit or burst is `limit`, and no unit is freed during a test.
fn kernels(limit: u64) -> [(&'static str, Kernel); 7] {
    let gcra = |period_us, units| Gcra::new(units, period_us, limit, Pacing::Meter);
    let fractions = gcra(DAY_US + 2, 7);
    assert_eq!(fractions.denominator, 7);
    let window_us = 366 * DAY_US;
    // The first window began in 2024 and ends in 2080.
    let boundaries = [54, 110, 111].map(|years| years * window_us);
    let kernels = [
        ("fixed window", Kernel::FixedWindow(FixedWindow::new(limit, window_us))),
        ("calendar window", Kernel::CalendarWindow(CalendarWindow::new(limit, boundaries))),
        ("sliding window", Kernel::SlidingWindow(SlidingWindow::new(limit, window_us))),
        ("sliding log", Kernel::SlidingLog(SlidingLog::new(limit, window_us))),
        ("gcra", Kernel::Gcra(gcra(DAY_US, 1))),
        ("gcra with fractions", Kernel::Gcra(fractions)),
        ("interval bucket", Kernel::IntervalBucket(IntervalBucket::new(limit, 1, DAY_US))),
    ];
    // GCRA is there twice, a limit of 0 has no counter, and slots count no units.
    assert_eq!(kernels.len(), Kernel::KINDS - 1);
    kernels
}

fn add_charge(charges: &mut Charges, kernel: Kernel, key: &str, cost: Cost) {
    let charge = Charge {
        kernel,
        cost,
        charging: Charging::Prepaid,
        role: Role::Enforce,
        on_store_failure: FailurePolicy::default(),
    };
    charges.push(charge, |keys| keys.push_str(key));
}

pub(crate) fn one_charge(kernel: Kernel, key: &str, cost: Cost) -> Charges {
    let mut charges = Charges::default();
    add_charge(&mut charges, kernel, key, cost);
    charges
}

async fn decide_one(
    store: &RedisStore,
    kernel: Kernel,
    key: &str,
    cost: Cost,
) -> Result<Outcome, StoreError> {
    store.decide(&one_charge(kernel, key, cost)).await.map(|outcomes| outcomes.by_charge[0])
}

async fn remaining(store: &RedisStore, kernel: Kernel, key: &str) -> u64 {
    let peek = decide_one(store, kernel, key, Cost::PEEK).await;
    peek.expect("Redis answers").report.remaining
}

/// Sends `count` concurrent requests. Returns how many were admitted.
async fn count_admitted(store: &RedisStore, charges: &Charges, count: usize) -> usize {
    let answers = join_all((0..count).map(|_| store.decide(charges))).await;
    let fits = |answer: &Result<_, _>| {
        let outcomes: &engine::Outcomes = answer.as_ref().expect("Redis answers");
        outcomes.by_charge.iter().all(|outcome| outcome.verdict == Verdict::Fits)
    };
    answers.iter().filter(|answer| fits(answer)).count()
}
