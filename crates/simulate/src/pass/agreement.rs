//! Compares simulated denials with those in the log, and explains differences by the log's clock.
//!
//! A log has the rounded time at which a request began; the decision came a little later. So the request that got a
//! freed unit need not be the first one in the log. A difference is attributed to the clock if the decision flips a
//! little earlier or later; the mirror difference of the same counter follows from it.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{Algorithm, Limit, LimitSpec, Verdict};
use smallvec::SmallVec;

use super::counters::{Counters, Decided};
use super::options::text_hash;
use super::planned::{Counter, Observation, RequestPlan};
use crate::report::{Agreement, ShiftCount, percent, share_ppm};

/// Shifts of a request's time, limited to a tenth of the time in which its limit frees a unit.
const SHIFTS_US: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Counters with a difference that another one may follow from. Bounds memory.
const MAX_OPEN: usize = 65_536;

/// The counters of a request that the log denied and that fits now, but would have been over its limits some time
/// earlier.
#[derive(Clone, Debug)]
pub(super) struct EarlierDenial {
    /// Index in [`SHIFTS_US`].
    shift: usize,
    /// Hashes of the keys that are over then.
    keys: SmallVec<[u64; 2]>,
}

/// Finds the shortest time before `t_us` at which the counters, as they are now, would deny the request. `None` if they
/// deny it now, or at none of the times.
pub(super) fn earlier_denial(counters: &Counters, plan: &RequestPlan, t_us: u64) -> Option<EarlierDenial> {
    let charges = &plan.charges;
    let over_at = |t_us| {
        let verdicts = counters.verdicts_at(charges, t_us);
        let is_over = |charge: usize| verdicts[charge] == Verdict::Over;
        charges.is_denied(is_over).then(|| {
            let keys = charges.keys().enumerate().filter(|(charge, _)| is_over(*charge));
            keys.map(|(_, key)| text_hash(key)).collect()
        })
    };
    if over_at(t_us).is_some() {
        return None;
    }
    let mut shifts = SHIFTS_US.iter().enumerate();
    shifts.find_map(|(shift, us)| Some(EarlierDenial { shift, keys: over_at(t_us.saturating_sub(*us))? }))
}

#[derive(Clone, Copy, Debug)]
struct ShiftedCounter {
    key: u64,
    period_us: u64,
    /// A larger shift explains nothing: it would make any request fit.
    largest_shift_us: u64,
}

impl ShiftedCounter {
    fn new(key: u64, limit: &LimitSpec) -> Self {
        let period_us = limit.period.us();
        let frees_all_at_once = limit.algorithm == Algorithm::FixedWindow;
        let units = if frees_all_at_once { 1 } else { limit.requests_per_unit.max(1) };
        // With a tenth of the time in which a unit is freed, a tenth of all differences vanish by chance.
        Self { key, period_us, largest_shift_us: period_us / units / 10 }
    }
}

/// A difference that another one of the same counter may follow from.
#[derive(Clone, Copy, Debug)]
struct OpenDifference {
    /// Units used in the log beyond those in the simulation.
    units: i64,
    shift: usize,
    /// Nothing follows from it after this time.
    until_us: u64,
}

#[derive(Debug, Default)]
pub(super) struct AgreementTally {
    /// `[recorded as denied][simulated as denied]`.
    recorded: [[u64; 2]; 2],
    /// Differences, by the shift at which they vanish.
    by_shift: [u64; SHIFTS_US.len()],
    open: HashMap<u64, OpenDifference>,
}

impl AgreementTally {
    /// Counts the simulated decision about a request. `limits`: those of the rules that made it.
    pub fn count(
        &mut self,
        seen: Observation,
        limits: &[Arc<Limit>],
        simulated: &Decided<'_>,
        earlier: Option<EarlierDenial>,
    ) {
        let is_denied = simulated.is_denied;
        self.recorded[usize::from(seen.was_limited)][usize::from(is_denied)] += 1;
        let difference = match (seen.was_limited, is_denied) {
            (false, true) => 1,
            (true, false) => -1,
            _ => return,
        };
        let plan = simulated.plan;
        let is_deciding =
            |counter: &&Counter| !is_denied || simulated.is_over(counter.charge) && !counter.never_denies;
        // A map creates no overrides, so every limit belongs to a rule.
        let counter = |counter: &Counter| {
            let limit = limits.get(counter.limit)?;
            Some(ShiftedCounter::new(text_hash(plan.charges.get(counter.charge).0), &limit.spec))
        };
        let counters: SmallVec<[ShiftedCounter; 4]> =
            plan.counters.iter().filter(is_deciding).filter_map(counter).collect();
        if let Some(shift) = self.follows(seen.t_us, difference, &counters) {
            self.by_shift[shift] += 1;
            return;
        }
        let (shift, counters) = if is_denied {
            let wait_us = simulated.retry_after().us();
            let shift = wait_us.and_then(|wait_us| SHIFTS_US.iter().position(|shift| wait_us <= *shift));
            (shift, counters)
        } else {
            let (shift, keys) = earlier.map_or((None, SmallVec::new()), |it| (Some(it.shift), it.keys));
            (shift, counters.into_iter().filter(|counter| keys.contains(&counter.key)).collect())
        };
        let Some(shift) = shift else { return };
        // A request that several limits deny has the longest of their waits, so one slow enough limit suffices.
        if !counters.iter().any(|counter| SHIFTS_US[shift] <= counter.largest_shift_us) {
            return;
        }
        self.by_shift[shift] += 1;
        for ShiftedCounter { key, period_us, .. } in counters {
            let until_us = seen.t_us.saturating_add(2 * period_us);
            self.open(key, OpenDifference { units: difference, shift, until_us });
        }
    }

    /// Returns the shift of an earlier difference that this one follows from: the log's counter had a unit more or
    /// less.
    fn follows(&mut self, t_us: u64, difference: i64, counters: &[ShiftedCounter]) -> Option<usize> {
        let mut found = None;
        for ShiftedCounter { key, .. } in counters {
            let Some(open) = self.open.get_mut(key) else { continue };
            if open.until_us < t_us {
                self.open.remove(key);
            } else if open.units.signum() == -difference {
                open.units += difference;
                found = found.max(Some(open.shift));
                if open.units == 0 {
                    self.open.remove(key);
                }
            }
        }
        found
    }

    fn open(&mut self, key: u64, difference: OpenDifference) {
        if let Some(open) = self.open.get_mut(&key) {
            open.units += difference.units;
            open.shift = open.shift.max(difference.shift);
            open.until_us = difference.until_us;
        } else if self.open.len() < MAX_OPEN {
            self.open.insert(key, difference);
        }
    }

    /// `None` without requests. `of` names the rules that were simulated.
    pub fn agreement(&self, of: &str) -> Option<Agreement> {
        let [[both_admit, only_simulated], [only_recorded, both_deny]] = self.recorded;
        let recorded = only_recorded + both_deny;
        let all = both_admit + only_simulated + recorded;
        if all == 0 {
            return None;
        }
        let mut vanished = 0;
        let count = |(shift_us, count): (&u64, &u64)| {
            vanished += count;
            let agreement_ppm = share_ppm(both_admit + both_deny + vanished, all);
            ShiftCount { shift_us: *shift_us, vanished, agreement_ppm }
        };
        let mut agreement = Agreement {
            of: of.to_owned(),
            summary: String::new(),
            both_admit,
            both_deny,
            only_recorded,
            only_simulated,
            reproduced_ppm: (recorded > 0).then(|| share_ppm(both_deny, recorded)),
            agreement_ppm: share_ppm(both_admit + both_deny, all),
            by_shift: SHIFTS_US.iter().zip(&self.by_shift).map(count).collect(),
        };
        agreement.summary = summary(&agreement);
        Some(agreement)
    }
}

/// Denials first: in most logs nearly all requests are admitted, which agrees with any rules.
fn summary(agreement: &Agreement) -> String {
    let Agreement { both_deny, only_recorded, only_simulated, .. } = agreement;
    let rules = if agreement.of == "compare" { " by the current rules" } else { "" };
    let denials = match agreement.reproduced_ppm {
        Some(share) => format!(
            "Of {} recorded denials {both_deny} are reproduced{rules} ({} %); {only_simulated} more are denied here only",
            both_deny + only_recorded,
            percent(share)
        ),
        None if *only_simulated == 0 => {
            return format!("Nothing to compare: no denial is recorded, and none is made{rules}.");
        }
        None => {
            return format!(
                "The log has no denials to compare with; {only_simulated} are made here only{rules}."
            );
        }
    };
    format!("{denials}. {} % of all decisions are as recorded.", percent(agreement.agreement_ppm))
}
