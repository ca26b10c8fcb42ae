//! Sliding-window counter: weights the previous window's count by the share of it that the sliding window still covers.
//! An interval that ends `e` into a window of length `P` admits at most `limit + floor(limit * e / P)` units.

use super::attempt::{Attempt, Cost, CounterView, Report, Verdict, apply_clamped};

/// `limit` units per sliding window of `window_us`, estimated from two epoch-aligned buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// 1 to 2^46 units, so that the Lua script compares products exactly.
    pub limit: u64,
    /// 1 us to 366 days.
    pub window_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// Start of the current window divided by its length.
    pub index: u64,
    pub current: u64,
    pub previous: u64,
}

impl SlidingWindow {
    pub fn new(limit: u64, window_us: u64) -> Self {
        Self { limit, window_us }
    }

    /// Returns the state at `now_us`. If the clock stepped back, a later window that holds units stays current, at its
    /// start.
    pub(super) fn advanced_to(&self, state: Option<BucketState>, now_us: u64) -> BucketState {
        let index = now_us / self.window_us;
        match state {
            Some(BucketState { current: 0, previous: 0, .. }) => {
                BucketState { index, current: 0, previous: 0 }
            }
            Some(state) if state.index >= index => state,
            Some(state) if state.index + 1 == index => {
                BucketState { index, current: 0, previous: state.current }
            }
            _ => BucketState { index, current: 0, previous: 0 },
        }
    }

    pub(super) fn fits(&self, state: BucketState, now_us: u64, needed: u64) -> bool {
        let Some(room) = self.limit.checked_sub(state.current + needed) else {
            return false;
        };
        let covered_us = self.window_us - self.elapsed_us(state, now_us);
        u128::from(state.previous) * u128::from(covered_us) <= u128::from(room) * u128::from(self.window_us)
    }

    pub(super) fn record(&self, state: BucketState, cost: Cost) -> BucketState {
        BucketState { current: apply_clamped(state.current, cost, self.limit), ..state }
    }

    pub(super) fn unused_from_us(&self, state: BucketState) -> u64 {
        match state {
            BucketState { current: 0, previous: 0, .. } => 0,
            BucketState { current: 0, .. } => (state.index + 1) * self.window_us,
            BucketState { .. } => (state.index + 2) * self.window_us,
        }
    }

    /// Time since the current window started; 0 if `now_us` is before it.
    fn elapsed_us(&self, state: BucketState, now_us: u64) -> u64 {
        now_us.saturating_sub(state.index * self.window_us)
    }

    /// Returns the units in the sliding window, rounded up.
    pub(super) fn used(&self, state: BucketState, now_us: u64) -> u64 {
        let covered_us = self.window_us - self.elapsed_us(state, now_us).min(self.window_us);
        let weighted =
            (u128::from(state.previous) * u128::from(covered_us)).div_ceil(u128::from(self.window_us));
        u64::try_from(u128::from(state.current) + weighted).unwrap_or(u64::MAX)
    }

    /// Returns the first instant at which `units` fit if nothing else happens: more than now, at most the limit.
    fn fits_at_us(&self, BucketState { index, current, previous }: BucketState, units: u64) -> u64 {
        let (limit, window_us) = (self.limit, self.window_us);
        let start_us = index * window_us;
        // Within this window, the weight of the previous count falls until the units fit.
        let room = limit.saturating_sub(current + units);
        if previous > 0 {
            let elapsed_us = window_us.saturating_sub(coverable_us(room, window_us, previous));
            if elapsed_us < window_us {
                return start_us + elapsed_us;
            }
        }
        // In the next window, the current count becomes the previous one.
        if current == 0 {
            return start_us + window_us;
        }
        start_us + window_us + window_us.saturating_sub(coverable_us(limit - units, window_us, current))
    }

    pub(super) fn report(&self, state: BucketState, attempt: Attempt, verdict: Verdict) -> Report {
        let now_us = attempt.now_us;
        let view = CounterView {
            max_cost: self.limit,
            remaining: self.limit.saturating_sub(self.used(state, now_us)),
            reset_after_us: self.unused_from_us(state).saturating_sub(now_us),
            wait_us: |units| self.fits_at_us(state, units).saturating_sub(now_us),
            longest_wait_us: || ((state.index + 2) * self.window_us).saturating_sub(now_us),
        };
        view.report(attempt.cost, verdict)
    }
}

/// `floor(units * window / count)`: how much of a window with `count` units may stay covered while `units` are free.
/// Saturates: for callers, all results above the window's length mean the same.
fn coverable_us(units: u64, window_us: u64, count: u64) -> u64 {
    let us = u128::from(units) * u128::from(window_us) / u128::from(count);
    u64::try_from(us).unwrap_or(u64::MAX)
}
