//! What a store answers: per charge a verdict and the numbers a caller may see.

use smallvec::SmallVec;

use super::FailurePolicy;
use super::algorithm::Facts;

/// Whether a cost fits under one limit, whatever the other limits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits (a peek: at least one unit is left; a refund: always).
    Fits,
    /// It does not.
    Over,
}

/// When the same cost would fit, if nothing else happens. The longer wait is the greater, and never the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryAfter {
    /// It fits now.
    Now,
    /// After that many microseconds, at least 1, and not one earlier.
    In(u64),
    /// It exceeds what the limit can ever hold.
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

/// Where one limit stands after a decision. Durations are microseconds from the caller's `now`, exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Units that could still be taken at this instant.
    pub remaining: u64,
    /// When the same cost would fit.
    pub retry_after: RetryAfter,
    /// Until the limit cannot be told from one never used.
    pub reset_after_us: u64,
    /// Until `remaining` grows; 0 when nothing is used.
    pub next_after_us: u64,
    /// How long an admitted hit has to wait in a queue; 0 elsewhere.
    pub delay_us: u64,
    /// What `duration_until_reset` says: the end of a fixed window; elsewhere `retry_after` when over and
    /// `reset_after` when not.
    pub until_reset_us: u64,
    /// Units a fixed window has recorded beyond its limit, as postpaid ones may; 0 elsewhere.
    pub over_by: u64,
}

impl Report {
    /// Of a counter that nobody has used, or of which nothing is known.
    #[must_use]
    pub fn idle(remaining: u64) -> Self {
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

/// Who gave the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// The store, from this counter.
    Store(CounterSnapshot),
    /// The limit's failure policy, because the store could not answer.
    Policy(FailurePolicy),
    /// Nobody: another limit holds the request back for certain, so this one was not asked. Its report says nothing.
    Skipped,
}

/// A counter after a decision, and when that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterSnapshot {
    /// The store's time, microseconds since the epoch.
    pub now_us: u64,
    /// The counter.
    pub facts: Facts,
}

/// The answer for one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the cost fits.
    pub verdict: Verdict,
    /// Where the limit stands now.
    pub report: Report,
    /// Who says so.
    pub basis: DecidedBy,
}

/// The answers for all charges of a request, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outcomes {
    /// One per charge.
    pub by_charge: SmallVec<[Outcome; 2]>,
}
