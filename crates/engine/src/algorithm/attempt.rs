//! A cost at a time, and the bounds of what a counter records: what every kernel needs.

use crate::cost::Cost;

/// The latest time for which decisions are exact, in the year 2112.
pub const MAX_TIME_US: u64 = (1 << 52) - 1;

/// A cost and the time at which it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The store's time, microseconds since the epoch, at most [`MAX_TIME_US`].
    pub now_us: u64,
    pub cost: Cost,
}

/// The most units that a postpaid counter records: its limit, and a debt of one further limit.
pub(super) fn max_recorded(limit: u64) -> u64 {
    2 * limit
}

/// A count after `cost` is recorded, kept between 0 and [`max_recorded`].
pub(super) fn apply_clamped(count: u64, cost: Cost, limit: u64) -> u64 {
    if cost.is_refund() {
        return count.saturating_sub(cost.refunded());
    }
    // `max(count)`: recording a cost must not lower a count, not even one above the bound.
    (count + cost.units().unsigned_abs()).min(max_recorded(limit)).max(count)
}
