//! Fixed window: counts units per epoch-aligned window. An interval that touches m windows admits at most m times the
//! limit.

use super::attempt::{Attempt, Cost, MAX_UNITS, Report, RetryAfter, Verdict};

/// `limit` units per window of `window_us`, aligned to the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    /// 1 to 2^52 units.
    pub limit: u64,
    /// 1 us to 366 days.
    pub window_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowState {
    /// Window start divided by window length.
    pub index: u64,
    /// Units recorded, at most 2^53 - 1. The end of the window discards any debt, so debt has no other bound.
    pub count: u64,
}

impl FixedWindow {
    pub fn new(limit: u64, window_us: u64) -> Self {
        Self { limit, window_us }
    }

    /// Returns the state at `now_us`. If the clock stepped back, a later window that holds units stays current.
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
        let count = state.count.saturating_sub(cost.refunded()) + cost.taken();
        WindowState { count: count.min(MAX_UNITS), ..state }
    }

    pub(super) fn unused_from_us(&self, state: WindowState) -> u64 {
        if state.count > 0 { self.end_us(state) } else { 0 }
    }

    pub(super) fn end_us(&self, state: WindowState) -> u64 {
        (state.index + 1) * self.window_us
    }

    pub(super) fn report(&self, state: WindowState, attempt: Attempt, verdict: Verdict) -> Report {
        let end_after_us = self.end_us(state).saturating_sub(attempt.now_us);
        window_report((self.limit, state.count), end_after_us, attempt.cost, verdict)
    }
}

/// Reports a window by its limit and count, and the time left in it.
pub(super) fn window_report(
    (limit, count): (u64, u64),
    end_after_us: u64,
    cost: Cost,
    verdict: Verdict,
) -> Report {
    let retry_after = match verdict {
        Verdict::Fits => RetryAfter::Now,
        Verdict::Over if cost.needed() > limit => RetryAfter::Never,
        Verdict::Over => RetryAfter::In(end_after_us),
    };
    let reset_after_us = if count > 0 { end_after_us } else { 0 };
    Report {
        remaining: limit.saturating_sub(count),
        retry_after,
        reset_after_us,
        next_after_us: reset_after_us,
        delay_us: 0,
        until_reset_us: end_after_us,
        over_by: count.saturating_sub(limit),
    }
}

/// Admits nothing and keeps no state. Reports the end of the block. If it has none, reports the end of the window of
/// the limit's period like a fixed window, as `envoyproxy/ratelimit` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// Window start: the epoch, except for calendar windows.
    start_us: u64,
    /// The limit's period, or the calendar window's length, 1 us to 366 days.
    pub window_us: u64,
    /// End of the block, microseconds since the epoch; `None` if it never ends. Only reported: planning decides if the
    /// limit is blocked.
    pub until_us: Option<u64>,
}

impl Blocked {
    pub const fn new(window_us: u64) -> Self {
        Self { start_us: 0, window_us, until_us: None }
    }

    /// Sets when the block ends, microseconds since the epoch.
    #[must_use]
    pub fn until(self, until_us: Option<u64>) -> Self {
        Self { until_us, ..self }
    }

    /// Uses a calendar window instead. `start_us`, `end_us`: microseconds since the epoch.
    pub(crate) fn within(self, (start_us, end_us): (u64, u64)) -> Self {
        Self { start_us, window_us: end_us - start_us, ..self }
    }

    pub(super) fn report(&self, attempt: Attempt, verdict: Verdict) -> Report {
        let retry_after = |wait| if verdict == Verdict::Fits { RetryAfter::Now } else { wait };
        let Some(until_us) = self.until_us else {
            // The clock of the process that set the start may be ahead of the store's.
            let until_reset_us = match attempt.now_us.checked_sub(self.start_us) {
                Some(passed_us) => self.window_us - passed_us % self.window_us,
                None => (self.start_us - attempt.now_us - 1) % self.window_us + 1,
            };
            return Report {
                retry_after: retry_after(RetryAfter::Never),
                until_reset_us,
                ..Report::unused(0)
            };
        };
        // The store's clock may be ahead of the clock that ends the block.
        let wait_us = until_us.saturating_sub(attempt.now_us).max(1);
        let retry_after = retry_after(RetryAfter::In(wait_us));
        Report { retry_after, next_after_us: wait_us, until_reset_us: wait_us, ..Report::unused(0) }
    }
}
