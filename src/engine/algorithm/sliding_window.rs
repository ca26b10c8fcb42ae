//! Sliding-window counter: the previous window's count weighs in by the share of it that the sliding window still
//! covers. At most `limit + floor(limit * e / P)` units in an interval that ends `e` into a window of length `P`.

use super::{Attempt, Cost, Reading, Report, Verdict, moved, report};

/// `limit` units per sliding window of `window_us`, estimated from two epoch-aligned buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    /// Units per window, 0 to 2^32 - 1.
    pub limit: u64,
    /// Length in microseconds, 1 to 366 days.
    pub window_us: u64,
}

/// Units recorded in the window of that index and in the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// Which window is current.
    pub index: u64,
    /// Units recorded in it.
    pub current: u64,
    /// Units recorded in the one before.
    pub previous: u64,
}

impl SlidingWindow {
    pub(crate) fn new(limit: u64, window_us: u64) -> Self {
        Self { limit, window_us }
    }

    /// The state as it stands at `now_us`. When the clock went back, time stands at the start of the later window.
    pub(super) fn load(&self, state: Option<BucketState>, now_us: u64) -> BucketState {
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
        let uncovered_us = self.window_us - self.elapsed_us(state, now_us);
        u128::from(state.previous) * u128::from(uncovered_us) <= u128::from(room) * u128::from(self.window_us)
    }

    pub(super) fn record(&self, state: BucketState, cost: Cost) -> BucketState {
        BucketState { current: moved(state.current, cost, self.limit), ..state }
    }

    pub(super) fn fresh_at_us(&self, state: BucketState) -> u64 {
        let windows = if state.current > 0 { 2 } else { u64::from(state.previous > 0) };
        (state.index + windows) * self.window_us
    }

    /// How far into the current window `now_us` is; 0 when the clock stands before it.
    fn elapsed_us(&self, state: BucketState, now_us: u64) -> u64 {
        now_us.saturating_sub(state.index * self.window_us)
    }

    pub(super) fn report(&self, state: BucketState, ask: Attempt, verdict: Verdict) -> Report {
        report(&At { kernel: *self, state, now_us: ask.now_us }, ask.cost, verdict)
    }
}

struct At {
    kernel: SlidingWindow,
    state: BucketState,
    now_us: u64,
}

impl At {
    /// Time from now until `elapsed_us` into the window that comes `windows` after the current one.
    fn until(&self, windows: u64, elapsed_us: u64) -> u64 {
        let instant_us = (self.state.index + windows) * self.kernel.window_us + elapsed_us;
        instant_us.saturating_sub(self.now_us)
    }
}

/// `floor(units * window / count)`: how much of the window may stay covered so that `count` leaves room for `units`.
/// Saturates, since only its comparison with the window's length matters above it.
fn coverable_us(units: u64, window_us: u64, count: u64) -> u64 {
    let us = u128::from(units) * u128::from(window_us) / u128::from(count);
    u64::try_from(us).unwrap_or(u64::MAX)
}

impl Reading for At {
    fn max_cost(&self) -> u64 {
        self.kernel.limit
    }

    fn remaining(&self) -> u64 {
        let window_us = self.kernel.window_us;
        let uncovered_us = window_us - self.kernel.elapsed_us(self.state, self.now_us);
        let weighed =
            (u128::from(self.state.previous) * u128::from(uncovered_us)).div_ceil(u128::from(window_us));
        let used = u128::from(self.state.current) + weighed;
        u64::try_from(u128::from(self.kernel.limit).saturating_sub(used)).unwrap_or(0)
    }

    fn wait_us(&self, units: u64) -> u64 {
        let (limit, window_us) = (self.kernel.limit, self.kernel.window_us);
        let BucketState { current, previous, .. } = self.state;
        // Within this window: the previous count fades until it leaves room.
        let room = limit.saturating_sub(current + units);
        if room > 0 && previous > 0 {
            let elapsed_us = window_us.saturating_sub(coverable_us(room, window_us, previous));
            if elapsed_us < window_us {
                return self.until(0, elapsed_us);
            }
        }
        // In the next window the current count is the previous one.
        if current == 0 {
            return self.until(1, 0);
        }
        let elapsed_us = window_us.saturating_sub(coverable_us(limit - units, window_us, current));
        self.until(1, elapsed_us)
    }

    fn reset_after_us(&self) -> u64 {
        if self.state.current == 0 && self.state.previous == 0 {
            return 0;
        }
        self.kernel.fresh_at_us(self.state).saturating_sub(self.now_us)
    }
}
