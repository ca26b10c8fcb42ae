//! What a kernel is asked and what it answers: a cost at a time, a verdict, and the numbers a caller may see. One
//! function computes the report of every kernel. Here is also the bound on postpaid debt.

use crate::limit::cost::Cost;

/// The latest time for which decisions are exact, in the year 2112.
pub const MAX_TIME_US: u64 = (1 << 52) - 1;

/// A cost and the time at which it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The store's time, microseconds since the epoch, at most [`MAX_TIME_US`].
    pub now_us: u64,
    pub cost: Cost,
}

/// Whether a cost fits under one limit, whatever the verdicts of the request's other limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The cost fits (a peek: at least one unit is left; a refund: always).
    Fits,
    /// The cost does not fit.
    Over,
}

/// When the same cost would fit, if nothing else happens. Ordered by the wait; `Never` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryAfter {
    Now,
    /// After exactly that many microseconds, at least 1.
    In(u64),
    /// Never: the cost exceeds the largest cost that the limit admits.
    Never,
}

impl RetryAfter {
    /// The wait in microseconds; 0 for now, `None` for never.
    #[must_use]
    pub fn us(self) -> Option<u64> {
        match self {
            Self::Now => Some(0),
            Self::In(us) => Some(us),
            Self::Never => None,
        }
    }
}

/// The state of one limit after a decision. Durations are exact microseconds, counted from the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Units that could still be taken at this instant.
    pub remaining: u64,
    /// When the same cost would fit.
    pub retry_after: RetryAfter,
    /// Time until the counter equals an unused one, for every kernel and verdict.
    pub reset_after_us: u64,
    /// Time until `remaining` grows; 0 when all units remain.
    pub next_after_us: u64,
    /// How long an admitted hit has to wait in a queue; 0 for all other kernels.
    pub delay_us: u64,
    /// The value of the wire field `duration_until_reset`. Fixed window: time until the window ends, also when it is
    /// unused. Other kernels: `retry_after` when over, else `reset_after_us`. If the cost never fits: the longest wait
    /// that the kernel tells any cost.
    pub until_reset_us: u64,
    /// Units that a fixed window has recorded beyond its limit (postpaid hits); 0 for all other kernels.
    pub over_by: u64,
}

impl Report {
    /// The report of an unused counter, or of a counter whose state is unknown.
    #[must_use]
    pub fn unused(remaining: u64) -> Self {
        Self {
            remaining,
            retry_after: RetryAfter::Now,
            reset_after_us: 0,
            next_after_us: 0,
            delay_us: 0,
            until_reset_us: 0,
            over_by: 0,
        }
    }
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

/// A counter at one instant, as its kernel reads it.
pub(super) trait CounterView {
    /// The largest cost that can ever fit.
    fn max_cost(&self) -> u64;
    /// Units that could be taken now.
    fn remaining(&self) -> u64;
    /// Least wait after which `units` fit. Called only with `remaining() < units <= max_cost()`.
    fn wait_us(&self, units: u64) -> u64;
    /// Wait until the counter equals an unused one.
    fn reset_after_us(&self) -> u64;
    /// The longest wait of a cost that fits an unused counter, if the counter has no debt.
    fn longest_wait_us(&self) -> u64;

    /// The report after a decision about `cost` with this verdict.
    fn report(&self, cost: Cost, verdict: Verdict) -> Report {
        let (max_cost, remaining) = (self.max_cost(), self.remaining());
        let retry_after = match verdict {
            Verdict::Fits => RetryAfter::Now,
            Verdict::Over if cost.needed() > max_cost => RetryAfter::Never,
            Verdict::Over => RetryAfter::In(self.wait_us(cost.needed())),
        };
        let reset_after_us = self.reset_after_us();
        let next_after_us = if remaining >= max_cost { 0 } else { self.wait_us(remaining + 1) };
        let until_reset_us = match retry_after {
            RetryAfter::In(us) => us,
            RetryAfter::Now => reset_after_us,
            // Never less than for a smaller cost: callers that cannot read "never" would otherwise retry at once.
            RetryAfter::Never => reset_after_us.max(self.longest_wait_us()),
        };
        Report {
            remaining,
            retry_after,
            reset_after_us,
            next_after_us,
            delay_us: 0,
            until_reset_us,
            over_by: 0,
        }
    }
}
