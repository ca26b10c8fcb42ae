//! The limits in units per period to try instead of a limit, and the effect of each.
//!
//! All else stays as in the rule file: an explicit burst is kept, a default one follows the limit. A fixed window needs
//! none of this: the counts of its windows show the effect of every limit.

use engine::algorithm::Kernel;
use engine::{Algorithm, Limit, LimitSpec, Quantity};

use crate::report::WhatIfPoint;

/// The limits to try, in eighths of the candidate: from an eighth to 32 times as many units, in steps of at most a
/// factor of two, mostly of a third or a half.
const EIGHTHS: [u64; 16] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// A bit for each tried limit: set if it is exceeded.
pub(super) type OverAt = u32;

/// The tried limits of one limit; empty if it is not swept.
#[derive(Debug, Default)]
pub(super) struct SweptLimit {
    /// In ascending order.
    pub tried: Vec<Tried>,
}

/// Units per period, and the requests that would be over them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    pub units: u64,
    pub kernel: Kernel,
    pub over: u64,
    pub good_over: u64,
}

/// `true` if each tried limit is decided by its own kernel.
pub(super) fn is_swept(spec: &LimitSpec) -> bool {
    !spec.unlimited && !matches!(spec.algorithm, Algorithm::FixedWindow | Algorithm::Concurrency)
}

impl SweptLimit {
    /// `in_force`: the current limit with the label of the candidate, which is tried, too.
    pub fn new(limit: &Limit, in_force: Option<&Limit>) -> Self {
        let kernels = if is_swept(&limit.spec) { kernels(limit, in_force) } else { Vec::new() };
        let tried = |(units, kernel)| Tried { units, kernel, over: 0, good_over: 0 };
        Self { tried: kernels.into_iter().map(tried).collect() }
    }

    /// Counts a request over these limits.
    pub fn count(&mut self, over_at: OverAt, is_good: bool) {
        for (place, tried) in self.tried.iter_mut().enumerate() {
            let is_over = over_at >> place & 1 == 1;
            tried.over += u64::from(is_over);
            tried.good_over += u64::from(is_over && is_good);
        }
    }

    /// The points of the curve. `keys_over`: the count of keys for each bit.
    pub fn points(&self, has_good: bool, keys_over: &[u64]) -> Vec<WhatIfPoint> {
        let point = |(tried, keys_over): (&Tried, &u64)| WhatIfPoint {
            limit: tried.units,
            denied: tried.over,
            good_denied: has_good.then_some(tried.good_over),
            keys_over: *keys_over,
        };
        self.tried.iter().zip(keys_over).map(point).collect()
    }

    /// The smallest limit that a key has never exceeded; `None` if it has exceeded all.
    pub fn smallest_kept(&self, over_at: OverAt) -> Option<u64> {
        let place = self.tried.len().min((OverAt::BITS - over_at.leading_zeros()) as usize);
        self.tried.get(place).map(|tried| tried.units)
    }
}

/// The limit with other units per period. Omits invalid ones: above the algorithm's largest limit, or with a fixed
/// burst that would take too long to refill.
fn kernels(limit: &Limit, in_force: Option<&Limit>) -> Vec<(u64, Kernel)> {
    let spec = &limit.spec;
    let judged = spec.requests_per_unit.max(1);
    let in_force =
        in_force.filter(|in_force| !in_force.spec.unlimited && in_force.spec.period == spec.period);
    let mut numbers: Vec<u64> = EIGHTHS
        .iter()
        .map(|eighths| judged.saturating_mul(*eighths).div_ceil(8))
        .chain(in_force.map(|in_force| in_force.spec.requests_per_unit.max(1)))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let kernel = |units: u64| {
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
    use engine::algorithm::Blocked;
    use engine::{Period, Unit};

    fn limit(algorithm: Algorithm, units: u64, burst: Option<u32>) -> Limit {
        let spec = LimitSpec { burst, ..LimitSpec::new(algorithm, units, Period::one(Unit::Second)) };
        Limit::new(spec).expect("a valid limit")
    }

    fn numbers(limit: &Limit, in_force: Option<&Limit>) -> Vec<u64> {
        kernels(limit, in_force).into_iter().map(|(units, _)| units).collect()
    }

    #[test]
    fn numbers_are_spread_around_the_judged_one() {
        let gcra = limit(Algorithm::Gcra, 2, Some(20));
        let in_force = limit(Algorithm::FixedWindow, 5, None);
        assert_eq!(numbers(&gcra, Some(&in_force)), [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64]);
        assert_eq!(
            numbers(&limit(Algorithm::Gcra, u32::MAX.into(), None), None).last(),
            Some(&u32::MAX.into())
        );
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
        let kernel = Kernel::Blocked(Blocked::new(1));
        let tried = [2, 4, 8].map(|units| Tried { units, kernel, over: 0, good_over: 0 });
        let limit = SweptLimit { tried: tried.to_vec() };
        // A refund may make a key exceed a limit while it stays within a smaller one.
        let table = [(0b000, Some(2)), (0b001, Some(4)), (0b010, Some(8)), (0b011, Some(8)), (0b111, None)];
        for (over_at, kept) in table {
            assert_eq!(limit.smallest_kept(over_at), kept, "{over_at:b}");
        }
    }
}
