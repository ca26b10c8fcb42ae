//! What a kernel decides on: a cost at a time, and what is kept of the counter; the part of it that a report needs; and
//! the bound on postpaid debt.

use super::fixed_window::WindowState;
use super::gcra::Tat;
use super::interval_bucket::TokenState;
use super::sliding_log::{Log, LogReading};
use super::sliding_window::BucketState;
use crate::cost::Cost;

/// The latest time for which decisions are exact, in the year 2112.
pub const MAX_TIME_US: u64 = (1 << 52) - 1;

/// This many grants of a sliding log take as much memory as a counter with its key.
const GRANTS_PER_COUNTER: usize = 16;

/// A cost and the time at which it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The store's time, microseconds since the epoch, at most [`MAX_TIME_US`].
    pub now_us: u64,
    pub cost: Cost,
}

/// The state of one counter, as its kernel left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Window(WindowState),
    Buckets(BucketState),
    Log(Log),
    Tat(Tat),
    Tokens(TokenState),
}

/// The numbers of a counter from which a report is computed: the whole state, or four numbers of a log, which is too
/// large to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterReading {
    Window(WindowState),
    Buckets(BucketState),
    Log(LogReading),
    Tat(Tat),
    Tokens(TokenState),
    /// A kernel without a counter has nothing to read.
    Nothing,
}

impl State {
    /// Memory used, in units of a counter with its key. The grants that a log has room for count in addition.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Log(log) => 1 + log.capacity() / GRANTS_PER_COUNTER,
            Self::Window(_) | Self::Buckets(_) | Self::Tat(_) | Self::Tokens(_) => 1,
        }
    }
}

// Each kernel takes its own kind of state and treats another kind as none. The fingerprint in the key
// separates the counters of different kernels.

impl State {
    pub(super) fn window(&self) -> Option<WindowState> {
        if let Self::Window(state) = self { Some(*state) } else { None }
    }

    pub(super) fn buckets(&self) -> Option<BucketState> {
        if let Self::Buckets(state) = self { Some(*state) } else { None }
    }

    pub(super) fn log(&self) -> Option<&Log> {
        if let Self::Log(log) = self { Some(log) } else { None }
    }

    pub(super) fn into_log(self) -> Option<Log> {
        if let Self::Log(log) = self { Some(log) } else { None }
    }

    pub(super) fn tat(&self) -> Option<Tat> {
        if let Self::Tat(tat) = self { Some(*tat) } else { None }
    }

    pub(super) fn tokens(&self) -> Option<TokenState> {
        if let Self::Tokens(state) = self { Some(*state) } else { None }
    }
}

impl CounterReading {
    pub(super) fn window(&self) -> Option<WindowState> {
        if let Self::Window(state) = self { Some(*state) } else { None }
    }

    pub(super) fn buckets(&self) -> Option<BucketState> {
        if let Self::Buckets(state) = self { Some(*state) } else { None }
    }

    pub(super) fn log(&self) -> Option<LogReading> {
        if let Self::Log(reading) = self { Some(*reading) } else { None }
    }

    pub(super) fn tat(&self) -> Option<Tat> {
        if let Self::Tat(tat) = self { Some(*tat) } else { None }
    }

    pub(super) fn tokens(&self) -> Option<TokenState> {
        if let Self::Tokens(state) = self { Some(*state) } else { None }
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
