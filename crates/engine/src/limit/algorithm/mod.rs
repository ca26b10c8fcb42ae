//! The algorithms, as exact integer arithmetic on one counter. A kernel is an algorithm with its parameters.
//!
//! Kernels run in the memory store. The Redis store runs the same rules in Lua and shares the functions for reports.
//! Expired, missing and unused counters give the same answers: removing expired states only frees memory.

mod attempt;
mod calendar_window;
mod fixed_window;
mod gcra;
mod interval_bucket;
mod kernel;
mod sliding_log;
mod sliding_window;
mod slots;
mod state;
mod undo;

#[cfg(test)]
mod tests;

pub use attempt::{Attempt, Cost, Grant, MAX_TIME_US, Report, RetryAfter, Verdict};
pub use calendar_window::{CalendarState, CalendarWindow};
pub use fixed_window::{Blocked, FixedWindow, WindowState};
pub use gcra::{Gcra, LONGEST_REFILL_US, Pacing, Tat};
pub use interval_bucket::{IntervalBucket, TokenState};
pub use kernel::Kernel;
pub use sliding_log::{Log, LogReading, MAX_LOG_LIMIT, SlidingLog};
pub use sliding_window::{BucketState, SlidingWindow};
pub use slots::{MAX_HOLD_US, MAX_SLOTS, OpenSlots, Slots, SlotsReading};
pub use state::{CounterReading, State};
pub use undo::{UNDO_SEARCH, Undo};
