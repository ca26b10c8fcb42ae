//! A counter that an operator sets is that of the engine after a charge of as many units on an unused counter, in Redis
//! and in memory.

use ::base::clock::{Clock as _, SystemClock};
use ::store::memory::{MemoryOptions, MemoryStore};
use ::store::redis::RedisStore;
use engine::algorithm::{Attempt, Kernel, State};
use engine::{
    Charge, Charges, Charging, Cost, CounterSnapshot, DecidedBy, Outcome, Outcomes, Reset, Role, Store,
};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::runtime::Runtime;

use super::lua_twin::strategies::{everyday, small};
use super::{one_charge, patient_options, store};
use crate::support::properties;
use crate::support::redis::Redis;

const KEY: &str = "replaced";

/// What the engine itself decides.
#[derive(Default)]
struct Model(Option<State>);

impl Model {
    fn decide(&mut self, charge: &Charge, now_us: u64) -> Outcome {
        let attempt = Attempt { now_us, cost: charge.cost };
        let verdict = charge.kernel.verdict(self.0.as_ref(), attempt);
        if charge.is_recorded(verdict, false) && charge.kernel.is_changed_by(self.0.as_ref(), attempt) {
            self.0 = charge.kernel.recorded(self.0.take(), attempt);
        }
        let reading = charge.kernel.reading(self.0.as_ref(), attempt);
        let report = charge.kernel.report(&reading, attempt, verdict);
        Outcome { verdict, report, decided_by: DecidedBy::Store(CounterSnapshot { now_us, reading }) }
    }
}

fn charge(kernel: Kernel, cost: Cost, charging: Charging) -> Charge {
    Charge { charging, role: Role::Shadow, ..one_charge(kernel, KEY, cost).charge(0).clone() }
}

fn charges(charge: Charge) -> Charges {
    let mut charges = Charges::default();
    charges.push(charge, |key| key.push_str(KEY));
    charges
}

fn now_us(outcome: &Outcome) -> u64 {
    let DecidedBy::Store(snapshot) = outcome.decided_by else { panic!("not from a store") };
    snapshot.now_us
}

/// The observable part: expired counters of different numbers are equal.
fn seen(outcome: &Outcome) -> (engine::Verdict, engine::Report) {
    (outcome.verdict, outcome.report)
}

struct Fixture {
    redis: Redis,
    runtime: Runtime,
    store: RedisStore,
}

impl Fixture {
    fn start() -> Self {
        let (redis, runtime) = (Redis::start(), Runtime::new().expect("a runtime"));
        let guard = runtime.enter();
        let store = store(&patient_options(&redis.url()));
        drop(guard);
        Self { redis, runtime, store }
    }

    fn decide(&self, charge: Charge) -> Outcome {
        let outcomes: Outcomes =
            self.runtime.block_on(self.store.decide(&charges(charge))).expect("Redis answers");
        outcomes.by_charge[0]
    }

    fn check(
        &self,
        kernel: Kernel,
        before: &[u64],
        used: u64,
        after: &[(u64, bool)],
    ) -> Result<(), TestCaseError> {
        self.runtime.block_on(self.store.reset(&one_charge(kernel, KEY, Cost::PEEK))).expect("Redis answers");
        let memory = MemoryStore::new(MemoryOptions::default(), SystemClock);
        for units in before {
            let taken = charge(kernel, Cost::take(*units), Charging::Postpaid);
            let outcome = self.decide(taken.clone());
            let _ = memory.decide_at(&charges(taken), now_us(&outcome));
        }
        let used = used.min(kernel.most_recorded());
        let set = charge(kernel, Cost::take(used), Charging::Postpaid);
        let outcome = self.runtime.block_on(self.store.replace(KEY, &set)).expect("Redis answers");
        let at_us = now_us(&outcome);
        let mut model = Model::default();
        prop_assert_eq!(seen(&outcome), seen(&model.decide(&set, at_us)), "in Redis");
        prop_assert_eq!(seen(&memory.replace_at(KEY, &set, at_us)), seen(&outcome), "in memory");
        prop_assert_eq!(outcome.report.remaining, kernel.max_cost().saturating_sub(used));

        self.check_ttl(kernel, model.0.as_ref(), at_us)?;
        for (units, is_prepaid) in after {
            let charging = if *is_prepaid { Charging::Prepaid } else { Charging::Postpaid };
            let next = charge(kernel, Cost::take(*units), charging);
            let outcome = self.decide(next.clone());
            let at_us = now_us(&outcome);
            prop_assert_eq!(seen(&outcome), seen(&model.decide(&next, at_us)), "in Redis: {:?}", &next);
            let in_memory = memory.decide_at(&charges(next), at_us).by_charge[0];
            prop_assert_eq!(seen(&in_memory), seen(&outcome), "in memory");
        }
        Ok(())
    }

    /// The counter is kept until it is unused, and at most two seconds longer.
    fn check_ttl(&self, kernel: Kernel, state: Option<&State>, at_us: u64) -> Result<(), TestCaseError> {
        let unused_us = state.map_or(0, |state| kernel.unused_from_us(state));
        let ttl_ms: i64 = self.redis.run(&["PTTL", &format!("it:{KEY}")]).expect("PTTL");
        if unused_us <= at_us {
            prop_assert_eq!(ttl_ms, -2, "an unused counter is not stored");
            return Ok(());
        }
        let ttl_us = u64::try_from(ttl_ms).unwrap_or(0) * 1_000;
        let passed_us = SystemClock.now_us().saturating_sub(at_us);
        let least_us = (unused_us - at_us).saturating_sub(passed_us);
        prop_assert!(ttl_us >= least_us, "{ttl_us} of {least_us}");
        prop_assert!(ttl_us <= unused_us - at_us + 2_001_000, "{ttl_us}");
        Ok(())
    }
}

fn compare(kernels: impl Strategy<Value = Kernel>) {
    let fixture = Fixture::start();
    let kernels = kernels.prop_filter("a counter", Kernel::has_counter);
    let units = || 0..200_000_u64;
    let cases = (kernels, vec(units(), 0..4), units(), vec((units(), any::<bool>()), 1..6));
    let result = properties::runner(file!()).run(&cases, |(kernel, before, used, after)| {
        let most = kernel.max_cost();
        let scaled = |units: u64| units % (most + most / 2 + 2);
        let before: Vec<_> = before.into_iter().map(scaled).collect();
        let after: Vec<_> = after.into_iter().map(|(units, prepaid)| (scaled(units), prepaid)).collect();
        fixture.check(kernel, &before, used % (2 * most + 3), &after)
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn a_counter_that_is_set_equals_one_that_has_used_the_units_for_everyday_numbers() {
    compare(everyday());
}

/// Windows of some microseconds end between two calls.
#[test]
fn a_counter_that_is_set_equals_one_that_has_used_the_units_for_small_numbers() {
    compare(small());
}

/// Each kernel, with the largest number that it keeps: equal requests in one batch each set their own counter.
#[test]
fn counters_that_are_set_at_once_do_not_mix() {
    let fixture = Fixture::start();
    for (name, kernel) in super::kernels(100) {
        for used in [0, 1, 100, kernel.most_recorded().min(1 << 52)] {
            let set = charge(kernel, Cost::take(used), Charging::Postpaid);
            let keys: Vec<String> = (0..20).map(|index| format!("{name}/{index}")).collect();
            let all = keys.iter().map(|key| fixture.store.replace(key, &set));
            let outcomes = fixture.runtime.block_on(futures_util::future::join_all(all));
            for (key, outcome) in keys.iter().zip(outcomes) {
                let left = 100_u64.saturating_sub(used);
                assert_eq!(outcome.expect("Redis answers").report.remaining, left, "{key}");
                let peek = fixture.runtime.block_on(super::remaining(&fixture.store, kernel, key));
                assert_eq!(peek, left, "{key}");
            }
        }
    }
}
