//! What other numbers of units per period would do to a limit: each is decided by the limit's own kernel, without the
//! other limits.
//!
//! All else is as the rule file has it: a burst that the file writes is held, one that it does not write follows the
//! number. A fixed window needs no sweep: it is read off the counts of its windows.

use engine::algorithm::{Attempt, Kernel};
use engine::{Algorithm, Limit, LimitSpec, Quantity, Verdict};

use super::counters::Counters;
use super::planned::RequestPlan;
use super::rule_sets::RuleSets;
use super::template::mixed;
use crate::report::WhatIfPoint;

/// The numbers that are tried, in eighths of the judged one: from an eighth to 32 times as many units, in steps of at
/// most a factor of two and mostly of a third or a half.
const EIGHTHS: [u64; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// A bit for each number of a limit: set if it is exceeded.
pub(super) type OverAt = u32;

/// The counters of all tried numbers of all limits.
#[derive(Debug)]
pub(super) struct Sweep {
    /// By the index of the judged limit.
    limits: Vec<SweptLimit>,
    /// Of all tried numbers of all limits.
    kernels: Vec<Kernel>,
    counters: Counters,
}

/// The numbers of one limit; none for a limit that is not swept.
#[derive(Debug, Default)]
pub(super) struct SweptLimit {
    /// The index of the first kernel.
    first: usize,
    /// By rising number.
    tried: Vec<Tried>,
}

/// Units per period, and the requests that would be over them.
#[derive(Clone, Copy, Debug, Default)]
struct Tried {
    units: u32,
    over: u64,
    good_over: u64,
}

/// Whether the limit is decided by a kernel of its own for each number.
pub(super) fn is_swept(spec: &LimitSpec) -> bool {
    !spec.unlimited && spec.algorithm != Algorithm::FixedWindow
}

impl Sweep {
    /// `in_force` is the limit in force with the label of a judged one: its number is tried, too.
    pub fn new<'r>(rules: &'r RuleSets, in_force: impl Fn(usize) -> Option<&'r Limit>) -> Self {
        let mut sweep = Self { limits: Vec::new(), kernels: Vec::new(), counters: Counters::new() };
        for (index, limit) in rules.judged.limits().iter().enumerate() {
            let first = sweep.kernels.len();
            let kernels = if is_swept(&limit.spec) { kernels(limit, in_force(index)) } else { Vec::new() };
            let tried = kernels.iter().map(|(units, _)| Tried { units: *units, ..Tried::default() });
            sweep.limits.push(SweptLimit { first, tried: tried.collect() });
            sweep.kernels.extend(kernels.into_iter().map(|(_, kernel)| kernel));
        }
        sweep
    }

    /// Decides and records one charge of a request by every number of its limit.
    pub fn decide(&mut self, plan: RequestPlan<'_>, charge: usize, now_us: u64) -> OverAt {
        // The limits of requests have no numbers.
        let Some(limit) = self.limits.get(plan.template.limits[charge]) else { return 0 };
        let key = &plan.keys[charge];
        let attempt = Attempt { now_us, cost: key.cost };
        let mut over_at = 0;
        for place in 0..limit.tried.len() {
            let index = limit.first + place;
            let kernel = &self.kernels[index];
            let counter = mixed(key.hash ^ mixed(index as u64 + 1));
            let verdict = self.counters.with_state(counter, |state| kernel.verdict(state, attempt));
            over_at |= OverAt::from(verdict == Verdict::Over) << place;
            // Without other limits a request is denied only if this charge does not fit, and is then not recorded.
            if plan.is_recorded(charge, verdict, false) {
                let index = u32::try_from(index).ok();
                self.counters.record(counter, (kernel, index), attempt, &self.kernels);
            }
        }
        over_at
    }

    /// Counts a request that would be over the limit at these numbers.
    pub fn count(&mut self, limit: usize, over_at: OverAt, is_good: bool) {
        if over_at == 0 {
            return;
        }
        let Some(limit) = self.limits.get_mut(limit) else { return };
        for (place, tried) in limit.tried.iter_mut().enumerate() {
            let is_over = over_at >> place & 1 == 1;
            tried.over += u64::from(is_over);
            tried.good_over += u64::from(is_over && is_good);
        }
    }

    /// The numbers of a judged limit.
    pub fn limit(&self, index: usize) -> Option<&SweptLimit> {
        self.limits.get(index)
    }

    /// Counters that were removed because the table was full: after that, limits admit too much.
    pub fn evictions(&self) -> u64 {
        self.counters.evictions()
    }
}

impl SweptLimit {
    /// The points of the curve. `keys_over` has the count of keys for each bit.
    pub fn points(&self, has_good: bool, keys_over: &[u64]) -> Vec<WhatIfPoint> {
        let point = |(tried, keys_over): (&Tried, &u64)| WhatIfPoint {
            limit: tried.units.into(),
            denied: tried.over,
            good_denied: has_good.then_some(tried.good_over),
            keys_over: *keys_over,
        };
        self.tried.iter().zip(keys_over).map(point).collect()
    }

    /// The smallest number that a key has never exceeded; `None` if it has exceeded all.
    pub fn smallest_kept(&self, over_at: OverAt) -> Option<u64> {
        let place = self.tried.len().min((OverAt::BITS - over_at.leading_zeros()) as usize);
        self.tried.get(place).map(|tried| tried.units.into())
    }
}

/// The limit with other numbers of units. A number for which there is no such limit is left out: a sliding log would be
/// too long, or a held burst would take too long to fill.
fn kernels(limit: &Limit, in_force: Option<&Limit>) -> Vec<(u32, Kernel)> {
    let spec = &limit.spec;
    let judged = u64::from(spec.requests_per_unit.max(1));
    let in_force = in_force.filter(|old| !old.spec.unlimited && old.spec.period == spec.period);
    let mut numbers: Vec<u32> = EIGHTHS
        .iter()
        .map(|eighths| u32::try_from((judged * eighths).div_ceil(8)).unwrap_or(u32::MAX))
        .chain(in_force.map(|old| old.spec.requests_per_unit.max(1)))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let kernel = |units: u32| {
        let spec = LimitSpec { requests_per_unit: units, ..spec.clone() };
        match Limit::new(spec).ok()?.quantity {
            Quantity::Limited(kernel) => Some((units, kernel)),
            Quantity::Unlimited => None,
        }
    };
    numbers.into_iter().filter_map(kernel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Period, Unit};

    fn limit(algorithm: Algorithm, units: u32, burst: Option<u32>) -> Limit {
        let spec = LimitSpec { burst, ..LimitSpec::new(algorithm, units, Period::one(Unit::Second)) };
        Limit::new(spec).expect("a valid limit")
    }

    fn numbers(limit: &Limit, in_force: Option<&Limit>) -> Vec<u32> {
        kernels(limit, in_force).into_iter().map(|(units, _)| units).collect()
    }

    #[test]
    fn numbers_are_spread_around_the_judged_one() {
        let gcra = limit(Algorithm::Gcra, 2, Some(20));
        let old = limit(Algorithm::FixedWindow, 5, None);
        assert_eq!(numbers(&gcra, Some(&old)), [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64]);
        assert_eq!(numbers(&limit(Algorithm::Gcra, u32::MAX, None), None).last(), Some(&u32::MAX));
        // More entries than a log may have.
        assert_eq!(numbers(&limit(Algorithm::SlidingLog, 6_000, None), None).last(), Some(&9_000));
        assert!(EIGHTHS.len() < OverAt::BITS as usize, "a bit for each, and for the limit in force");
    }

    #[test]
    fn a_written_burst_is_held_and_an_unwritten_one_follows() {
        let most = |burst| {
            let found = kernels(&limit(Algorithm::Gcra, 8, burst), None);
            found.iter().map(|(_, kernel)| kernel.max_cost()).take(3).collect::<Vec<_>>()
        };
        assert_eq!((most(Some(20)), most(None)), (vec![20, 20, 20], vec![1, 2, 3]));
    }

    #[test]
    fn the_smallest_number_that_a_key_keeps_is_above_all_that_it_exceeds() {
        let tried = [2, 4, 8].map(|units| Tried { units, ..Tried::default() });
        let limit = SweptLimit { first: 0, tried: tried.to_vec() };
        // A refund may make a key exceed a number and keep a smaller one.
        let table = [(0b000, Some(2)), (0b001, Some(4)), (0b010, Some(8)), (0b011, Some(8)), (0b111, None)];
        for (over_at, kept) in table {
            assert_eq!(limit.smallest_kept(over_at), kept, "{over_at:b}");
        }
    }
}
