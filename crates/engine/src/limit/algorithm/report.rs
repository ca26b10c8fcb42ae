//! Input and output of kernels: a cost at a time, a verdict, and the numbers in answers.
//!
//! One function computes the reports of all kernels. The bound on postpaid debt is here, too.

use crate::limit::cost::Cost;

/// Latest time for which decisions are exact, in the year 2112.
pub const MAX_TIME_US: u64 = (1 << 52) - 1;

/// A cost at one time, for a kernel to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The store's time, microseconds since the epoch, at most [`MAX_TIME_US`].
    pub now_us: u64,
    pub cost: Cost,
}

/// Whether a cost fits one limit, regardless of the request's other limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// For a peek, at least one unit is left. A refund always fits.
    Fits,
    Over,
}

/// When the same cost would fit if nothing else happens. Ordered by wait; `Never` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryAfter {
    Now,
    /// Exact wait in microseconds, at least 1.
    In(u64),
    /// The cost exceeds the largest cost that the limit admits.
    Never,
}

impl RetryAfter {
    /// The wait in microseconds; 0 for now, `None` for never.
    pub fn us(self) -> Option<u64> {
        match self {
            Self::Now => Some(0),
            Self::In(us) => Some(us),
            Self::Never => None,
        }
    }
}

/// The state of one limit after a decision. Durations are exact microseconds from the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Units that could still be taken at this instant.
    pub remaining: u64,
    /// When the same cost would fit.
    pub retry_after: RetryAfter,
    /// Time until the counter equals an unused one, for every kernel and verdict.
    pub reset_after_us: u64,
    /// Time until `remaining` grows; 0 if all units remain.
    pub next_after_us: u64,
    /// Time that an admitted hit has to wait in a queue; 0 for all other kernels.
    pub delay_us: u64,
    /// The wire field `duration_until_reset`. Fixed window: time until the window ends, even if it is unused. Other
    /// kernels: `retry_after` if over, else `reset_after_us`. If the cost never fits: the longest wait that the kernel
    /// reports for any cost.
    pub until_reset_us: u64,
    /// Postpaid units that a fixed window recorded beyond its limit; 0 for all other kernels.
    pub over_by: u64,
}

impl Report {
    /// Reports an unused counter, or one whose state is unknown.
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

/// Most units that a postpaid counter records: its limit plus a debt of the same size.
pub(super) fn max_recorded(limit: u64) -> u64 {
    2 * limit
}

/// Returns the count after recording `cost`, kept between 0 and [`max_recorded`].
pub(super) fn apply_clamped(count: u64, cost: Cost, limit: u64) -> u64 {
    if cost.is_refund() {
        return count.saturating_sub(cost.refunded());
    }
    // `max(count)`: recording a cost must not lower a count, even if it is above the bound.
    (count + cost.units().unsigned_abs()).min(max_recorded(limit)).max(count)
}

/// A counter at one instant.
pub(super) struct CounterView<W, L> {
    /// The largest cost that can ever fit.
    pub max_cost: u64,
    pub remaining: u64,
    /// Wait until the counter equals an unused one.
    pub reset_after_us: u64,
    /// Shortest wait after which some units fit. Called only with more than `remaining` and at most `max_cost`.
    pub wait_us: W,
    /// The longest wait of a cost that fits an unused counter, assuming no debt.
    pub longest_wait_us: L,
}

impl<W: Fn(u64) -> u64, L: Fn() -> u64> CounterView<W, L> {
    pub fn report(self, cost: Cost, verdict: Verdict) -> Report {
        let Self { max_cost, remaining, reset_after_us, wait_us, longest_wait_us } = self;
        let retry_after = match verdict {
            Verdict::Fits => RetryAfter::Now,
            Verdict::Over if cost.needed() > max_cost => RetryAfter::Never,
            Verdict::Over => RetryAfter::In(wait_us(cost.needed())),
        };
        let next_after_us = if remaining >= max_cost { 0 } else { wait_us(remaining + 1) };
        let until_reset_us = match retry_after {
            RetryAfter::In(us) => us,
            RetryAfter::Now => reset_after_us,
            // At least the wait for any smaller cost: callers that cannot read "never" would otherwise retry
            // immediately.
            RetryAfter::Never => reset_after_us.max(longest_wait_us()),
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
