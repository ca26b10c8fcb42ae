//! Fixed window: a count per epoch-aligned window. Any interval that touches m windows admits at most m limits.

use super::{Attempt, Cost, Reading, Report, Verdict, moved, report};

/// `limit` units per window of `window_us`, windows aligned to the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// Units per window, 0 to 2^32 - 1.
    pub limit: u64,
    /// Length in microseconds, 1 to 366 days.
    pub window_us: u64,
}

/// Units recorded in the window of that index (time divided by the window's length).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// Which window.
    pub index: u64,
    /// Units recorded in it.
    pub count: u64,
}

impl FixedWindow {
    pub(crate) fn new(limit: u64, window_us: u64) -> Self {
        Self { limit, window_us }
    }

    /// The state as it stands at `now_us`. When the clock went back, a later window that was used stays.
    pub(super) fn load(&self, state: Option<WindowState>, now_us: u64) -> WindowState {
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
        WindowState { count: moved(state.count, cost, self.limit), ..state }
    }

    pub(super) fn fresh_at_us(&self, state: WindowState) -> u64 {
        (state.index + 1) * self.window_us
    }

    pub(super) fn report(&self, state: WindowState, ask: Attempt, verdict: Verdict) -> Report {
        let end_after_us = self.fresh_at_us(state).saturating_sub(ask.now_us);
        let reading = At { limit: self.limit, count: state.count, end_after_us };
        let over_by = state.count.saturating_sub(self.limit);
        Report { until_reset_us: end_after_us, over_by, ..report(&reading, ask.cost, verdict) }
    }
}

struct At {
    limit: u64,
    count: u64,
    end_after_us: u64,
}

impl Reading for At {
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
}
