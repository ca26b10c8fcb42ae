//! A third store, as small as possible: the engine's kernels on a map. It keeps the contract, and the contract finds
//! each rule that a variant of it breaks.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use ::store::clock::{Clock, ManualClock};
use engine::algorithm::{Attempt, State};
use engine::{Charge, Charges, CounterSnapshot, DecidedBy, Outcome, Outcomes, Store, StoreError, Verdict};
use futures_util::FutureExt;

use super::contract::contract;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fault {
    ChargesDeniedRequests,
    RecordsOnlyWhatFits,
    SharesOneCounter,
    IgnoresRoles,
    StandsStill,
}

struct MapStore {
    states: Mutex<HashMap<String, State>>,
    clock: Arc<ManualClock>,
    fault: Option<Fault>,
}

impl MapStore {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn is_denied(&self, charges: &Charges, verdicts: &[Verdict]) -> bool {
        let is_over = |index: usize| verdicts[index] == Verdict::Over;
        if self.has(Fault::IgnoresRoles) {
            return (0..verdicts.len()).any(is_over);
        }
        charges.is_denied(is_over) && !self.has(Fault::ChargesDeniedRequests)
    }

    fn is_recorded(&self, charge: &Charge, verdict: Verdict, is_denied: bool) -> bool {
        match self.fault {
            Some(Fault::RecordsOnlyWhatFits) => verdict == Verdict::Fits && !is_denied,
            _ => charge.is_recorded(verdict, is_denied),
        }
    }
}

impl Store for MapStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let now_us = if self.has(Fault::StandsStill) { 0 } else { self.clock.now_us() };
        let attempt = |charge: &Charge| Attempt { now_us, cost: charge.cost };
        let counter = |key: &str| if self.has(Fault::SharesOneCounter) { "" } else { key }.to_owned();
        let mut states = self.states.lock().expect("no decision panics");
        let finish = |states: &mut HashMap<String, State>, key: &str, charge: &Charge, verdict, is_denied| {
            if self.is_recorded(charge, verdict, is_denied) {
                let before = states.remove(&counter(key));
                let after = charge.kernel.recorded(before, attempt(charge));
                states.extend(after.map(|after| (counter(key), after)));
            }
            let reading = charge.kernel.reading(states.get(&counter(key)), attempt(charge));
            let report = charge.kernel.report(&reading, attempt(charge), verdict);
            let decided_by = DecidedBy::Store(CounterSnapshot { now_us, reading });
            Outcome { verdict, report, decided_by }
        };
        let mut verdicts = Vec::new();
        let mut outcomes = Vec::new();
        for (key, charge) in charges.iter() {
            let verdict = charge.kernel.verdict(states.get(&counter(key)), attempt(charge));
            verdicts.push(verdict);
            let is_decided = charge.is_independent();
            outcomes.push(is_decided.then(|| finish(&mut states, key, charge, verdict, false)));
        }
        let is_denied = self.is_denied(charges, &verdicts);
        for ((outcome, (key, charge)), verdict) in outcomes.iter_mut().zip(charges.iter()).zip(verdicts) {
            if !charge.is_independent() {
                *outcome = Some(finish(&mut states, key, charge, verdict, is_denied));
            }
        }
        Ok(outcomes.into_iter().flatten().collect())
    }
}

async fn check(fault: Option<Fault>) {
    let clock = Arc::new(ManualClock::default());
    contract(MapStore { states: Mutex::default(), clock: Arc::clone(&clock), fault }, clock).await;
}

#[tokio::test]
async fn a_map_of_counters_keeps_the_contract() {
    check(None).await;
}

#[tokio::test]
async fn the_contract_finds_every_broken_rule() {
    for fault in [
        Fault::ChargesDeniedRequests,
        Fault::RecordsOnlyWhatFits,
        Fault::SharesOneCounter,
        Fault::IgnoresRoles,
        Fault::StandsStill,
    ] {
        let result = AssertUnwindSafe(check(Some(fault))).catch_unwind().await;
        assert!(result.is_err(), "{fault:?} keeps the contract");
    }
}
