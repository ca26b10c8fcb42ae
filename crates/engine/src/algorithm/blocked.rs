//! A limit of 0, whatever its algorithm. Every cost is over, and there is no counter.

use std::fmt;

use super::attempt::Attempt;
use super::report::{CounterView, Report, Verdict};

/// Admits nothing and keeps no state. Reports the end of the epoch-aligned window of the limit's period, as a fixed
/// window does: `envoyproxy/ratelimit` answers so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    window_us: u64,
}

impl Blocked {
    /// `window_us`: the period of the limit, 1 us to 366 days.
    #[must_use]
    pub const fn new(window_us: u64) -> Self {
        Self { window_us }
    }

    /// The period of the limit in microseconds.
    #[must_use]
    pub fn window_us(&self) -> u64 {
        self.window_us
    }

    pub(super) fn report(&self, attempt: Attempt, verdict: Verdict) -> Report {
        let until_reset_us = self.window_us - attempt.now_us % self.window_us;
        Report { until_reset_us, ..BlockedView.report(attempt.cost, verdict) }
    }
}

struct BlockedView;

impl CounterView for BlockedView {
    fn max_cost(&self) -> u64 {
        0
    }
    fn remaining(&self) -> u64 {
        0
    }
    fn wait_us(&self, _units: u64) -> u64 {
        0
    }
    fn reset_after_us(&self) -> u64 {
        0
    }
    fn longest_wait_us(&self) -> u64 {
        0
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no:{}", self.window_us)
    }
}
