//! Processes that share a memory store as if it were Redis, with one clock for all.

mod failures;
mod known_answers;
mod properties;

use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, ManualClock};
use engine::algorithm::{CounterReading, Kernel};
use engine::{
    Charge, Charges, Charging, Cost, DecidedBy, FailurePolicy, LimitId, Outcome, Outcomes, Role, Store,
    StoreError,
};
use futures_util::FutureExt;

use super::lease::ClockMargin;
use super::lender::{self, Errand};
use super::{LeaseStats, Leased, LeasedUnits, Leases, Lender};
use crate::memory::{MemoryOptions, MemoryStore};

type TestClock = Arc<ManualClock>;
type Memory = Arc<MemoryStore<TestClock>>;

/// Without a margin: all clocks are one.
fn exact() -> Arc<Leases> {
    let mut leases = Leases::new(Duration::from_secs(1));
    leases.margin = ClockMargin { per_mille: 0, fixed_us: 0 };
    Arc::new(leases)
}

fn all_units(stats: &LeaseStats) -> LeasedUnits {
    let mut units = stats.windows;
    units += stats.gcra;
    units
}

/// Returns what a future that does not wait returns.
fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("memory answers at once")
}

fn memory(clock: &TestClock) -> Memory {
    Arc::new(MemoryStore::new(MemoryOptions::default(), Arc::clone(clock)))
}

/// One charge, which may use borrowed units.
#[derive(Clone, Copy, Debug)]
struct Hit {
    key: &'static str,
    kernel: Kernel,
    cost: Cost,
    charging: Charging,
    role: Role,
}

fn request(hits: &[Hit]) -> Charges {
    let mut charges = Charges::default();
    for &Hit { key, kernel, cost, charging, role } in hits {
        let charge = Charge { kernel, cost, charging, role, on_store_failure: FailurePolicy::Error };
        let index = charges.push(charge, |text| text.push_str(key));
        charges.set_leased(index, LimitId(0));
    }
    charges
}

struct Process {
    layer: Leased<Memory, TestClock>,
    lender: Lender<Memory, TestClock>,
    leases: Arc<Leases>,
    memory: Memory,
    clock: TestClock,
}

impl Process {
    fn new(memory: &Memory, clock: &TestClock) -> Self {
        let leases = exact();
        let (layer, lender) = Leased::new(Arc::clone(memory), Arc::clone(&leases), Arc::clone(clock));
        Self { layer, lender, leases, memory: Arc::clone(memory), clock: Arc::clone(clock) }
    }

    fn decide(&self, hits: &[Hit]) -> Outcomes {
        now(self.layer.decide(&request(hits))).expect("memory does not fail")
    }

    fn run(&self, errand: Errand) {
        now(lender::run(&self.memory, &self.leases, &self.clock, errand));
    }

    fn give_all_back(&self) {
        self.leases.take_out(self.clock.now_us(), true).into_iter().for_each(|unused| self.run(unused));
    }

    /// Asks for a number of units, whatever the demand is. Returns `true` if they were granted.
    fn ask(&self, key: &str, kernel: Kernel, units: u64) -> bool {
        let granted = self.leases.stats().asks_granted;
        self.run(self.ask_for(key, kernel, units));
        self.leases.stats().asks_granted > granted
    }

    /// The store charges the units, but no reply comes.
    fn lose_ask(&self, key: &str, kernel: Kernel, units: u64) {
        let ask = self.ask_for(key, kernel, units);
        let hit = Hit {
            key: "",
            kernel,
            cost: Cost::take(units),
            charging: Charging::Prepaid,
            role: Role::Enforce,
        };
        let charge = request(&[hit]).charge(0).clone();
        let mut charges = Charges::default();
        charges.push(charge, |text| text.push_str(key));
        drop(now(self.memory.decide(&charges)));
        let now_us = self.clock.now_us();
        self.leases.answered(&ask, Err(&StoreError::Timeout), (now_us, now_us));
    }

    fn ask_for(&self, key: &str, kernel: Kernel, units: u64) -> Errand {
        let snapshot = peek(&self.memory, key, kernel).decided_by.snapshot().expect("a counter");
        self.leases.ask_for((key, kernel, units), snapshot, self.clock.now_us())
    }

    /// Sends the asks that are due.
    fn send_asks(&mut self) {
        while let Ok(ask) = self.lender.asks.try_recv() {
            self.run(ask);
        }
    }

    fn sweep(&self) {
        for unused in self.leases.sweep(self.clock.now_us()) {
            self.run(unused);
        }
    }
}

fn peek(memory: &Memory, key: &str, kernel: Kernel) -> Outcome {
    let charge = Charge {
        kernel,
        cost: Cost::PEEK,
        charging: Charging::Prepaid,
        role: Role::Enforce,
        on_store_failure: FailurePolicy::Error,
    };
    let mut charges = Charges::default();
    charges.push(charge, |text| text.push_str(key));
    now(memory.decide(&charges)).expect("memory does not fail").by_charge[0]
}

/// The counter as the known answers write it; times in milliseconds.
fn counter(memory: &Memory, key: &str, kernel: Kernel) -> String {
    match peek(memory, key, kernel).decided_by {
        DecidedBy::Store(snapshot) => match snapshot.reading {
            CounterReading::Window(state) => format!("{}:{}", state.index, state.count),
            CounterReading::Buckets(state) => format!("{}:{}:{}", state.index, state.current, state.previous),
            CounterReading::Tat(tat) => (tat.whole_us / 1_000).to_string(),
            CounterReading::Tokens(state) => format!("{} from {}", state.tokens, state.start_us / 1_000),
            other => format!("{other:?}"),
        },
        other => format!("{other:?}"),
    }
}
