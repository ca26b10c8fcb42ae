//! Fixed window: a count per epoch-aligned window. An interval that touches m windows admits at most m times the limit.

use std::fmt;

use super::report::{Attempt, CounterView, Report, Verdict, max_recorded};
use crate::request::Cost;

/// `limit` units per window of `window_us`, windows aligned to the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window_us: u64,
}

/// The count of one window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// Number of the window: its start divided by its length.
    pub index: u64,
    /// Units recorded in it. The next charge takes a debt of more than one further limit as one further limit; the
    /// count is exact until then, so that a report tells how many units of a charge were over the limit.
    pub count: u64,
}

impl FixedWindow {
    /// `limit`: 1 to 2^32 - 1 units; `window_us`: 1 us to 366 days.
    #[must_use]
    pub fn new(limit: u64, window_us: u64) -> Self {
        Self { limit, window_us }
    }

    /// Units per window.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Length of a window in microseconds.
    #[must_use]
    pub fn window_us(&self) -> u64 {
        self.window_us
    }

    pub(super) fn scaled(&self, scale: impl Fn(u64) -> u64) -> Self {
        Self { limit: scale(self.limit), ..*self }
    }

    /// The state at `now_us`. When the clock has stepped back, a later window with units in it stays current.
    pub(super) fn advanced_to(&self, state: Option<WindowState>, now_us: u64) -> WindowState {
        let index = now_us / self.window_us;
        match state {
            Some(state) if state.index >= index && state.count > 0 => state,
            _ => WindowState { index, count: 0 },
        }
    }

    pub(super) fn fits(&self, state: WindowState, needed: u64) -> bool {
        state.count + needed <= self.limit
    }

    pub(super) fn record(&self, state: WindowState, cost: Cost) -> WindowState {
        let before = state.count.min(max_recorded(self.limit));
        let count =
            if cost.is_refund() { before.saturating_sub(cost.refunded()) } else { before + cost.taken() };
        WindowState { count, ..state }
    }

    /// Whether the window is used up by so much that the cost, which is denied, changes no later decision: a peek
    /// records nothing, and a debt beyond one further limit counts as one further limit.
    pub(super) fn is_unchanged_by(&self, state: WindowState, cost: Cost) -> bool {
        state.count >= if cost.changes_counter() { max_recorded(self.limit) } else { self.limit }
    }

    pub(super) fn unused_from_us(&self, state: WindowState) -> u64 {
        if state.count > 0 { self.end_us(state) } else { 0 }
    }

    fn end_us(&self, state: WindowState) -> u64 {
        (state.index + 1) * self.window_us
    }

    pub(super) fn report(&self, state: WindowState, attempt: Attempt, verdict: Verdict) -> Report {
        let end_after_us = self.end_us(state).saturating_sub(attempt.now_us);
        let view = FixedWindowView { limit: self.limit, count: state.count, end_after_us };
        let over_by = state.count.saturating_sub(self.limit);
        Report { until_reset_us: end_after_us, over_by, ..view.report(attempt.cost, verdict) }
    }
}

struct FixedWindowView {
    limit: u64,
    count: u64,
    end_after_us: u64,
}

impl CounterView for FixedWindowView {
    fn max_cost(&self) -> u64 {
        self.limit
    }
    fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.count)
    }
    fn wait_us(&self, _units: u64) -> u64 {
        self.end_after_us
    }
    fn reset_after_us(&self) -> u64 {
        if self.count > 0 { self.end_after_us } else { 0 }
    }
    fn longest_wait_us(&self) -> u64 {
        self.end_after_us
    }
}

impl fmt::Display for FixedWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fw:{}/{}", self.limit, self.window_us)
    }
}

/// Admits nothing and keeps no state. Reports the end of the window of the limit's period, as a fixed window does:
/// `envoyproxy/ratelimit` answers so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The start of a window: the epoch unless the windows are those of a calendar.
    start_us: u64,
    window_us: u64,
}

impl Blocked {
    /// `window_us`: the period of the limit, 1 us to 366 days.
    #[must_use]
    pub const fn new(window_us: u64) -> Self {
        Self { start_us: 0, window_us }
    }

    /// `start_us`, `end_us`: a window, microseconds since the epoch.
    pub(crate) fn within((start_us, end_us): (u64, u64)) -> Self {
        Self { start_us, window_us: end_us - start_us }
    }

    /// The period of the limit in microseconds.
    #[must_use]
    pub fn window_us(&self) -> u64 {
        self.window_us
    }

    pub(super) fn report(&self, attempt: Attempt, verdict: Verdict) -> Report {
        let until_reset_us = self.window_us - attempt.now_us.saturating_sub(self.start_us) % self.window_us;
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
