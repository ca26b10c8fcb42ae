//! Token bucket that refills whole intervals at a time. At most `capacity + refill * ceil(d / interval)` units in an
//! interval of length d.

use super::{Attempt, Cost, Reading, Report, Verdict, report};

/// `refill` whole tokens every `interval_us`, up to `capacity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalBucket {
    /// Tokens of a full bucket, 1 to 2^32 - 1.
    pub capacity: u64,
    /// Tokens per interval, 1 to 2^32 - 1.
    pub refill: u64,
    /// The interval in microseconds, 1 to 366 days.
    pub interval_us: u64,
}

/// Tokens at the last whole interval. A full bucket has no anchor: its next interval starts with the next take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenState {
    /// Tokens left; negative when postpaid hits are owed.
    pub tokens: i64,
    /// When the running interval began.
    pub last_us: u64,
}

impl IntervalBucket {
    pub(crate) fn new(capacity: u64, refill: u64, interval_us: u64) -> Self {
        Self { capacity, refill, interval_us }
    }

    fn full(&self) -> i64 {
        self.capacity.cast_signed()
    }

    /// Intervals until the bucket holds `tokens`.
    fn intervals(&self, state: TokenState, tokens: i64) -> u64 {
        (tokens - state.tokens).max(0).unsigned_abs().div_ceil(self.refill)
    }

    /// The state as it stands at `now_us`, moved on by whole intervals only.
    pub(super) fn load(&self, state: Option<TokenState>, now_us: u64) -> TokenState {
        let Some(state) = state else {
            return TokenState { tokens: self.full(), last_us: now_us };
        };
        let effective_us = now_us.max(state.last_us);
        let ticks = (effective_us - state.last_us) / self.interval_us;
        // Ticks are compared before they are multiplied: a long idle time would leave the exact range.
        if ticks >= self.intervals(state, self.full()) {
            return TokenState { tokens: self.full(), last_us: now_us };
        }
        TokenState {
            tokens: state.tokens + (ticks * self.refill).cast_signed(),
            last_us: state.last_us + ticks * self.interval_us,
        }
    }

    pub(super) fn fits(&self, state: TokenState, needed: u64) -> bool {
        needed.cast_signed() <= state.tokens
    }

    pub(super) fn record(&self, state: TokenState, cost: Cost) -> TokenState {
        let deepest = (-self.full()).min(state.tokens);
        let tokens = (state.tokens - cost.units()).clamp(deepest, self.full());
        TokenState { tokens, ..state }
    }

    /// When the bucket holds `tokens`.
    fn holds_at_us(&self, state: TokenState, tokens: i64) -> u64 {
        state.last_us + self.intervals(state, tokens) * self.interval_us
    }

    pub(super) fn fresh_at_us(&self, state: TokenState) -> u64 {
        self.holds_at_us(state, self.full())
    }

    pub(super) fn report(&self, state: TokenState, ask: Attempt, verdict: Verdict) -> Report {
        report(&At { kernel: *self, state, now_us: ask.now_us }, ask.cost, verdict)
    }
}

struct At {
    kernel: IntervalBucket,
    state: TokenState,
    now_us: u64,
}

impl Reading for At {
    fn max_cost(&self) -> u64 {
        self.kernel.capacity
    }
    fn remaining(&self) -> u64 {
        self.state.tokens.max(0).unsigned_abs()
    }
    fn wait_us(&self, units: u64) -> u64 {
        self.kernel.holds_at_us(self.state, units.cast_signed()).saturating_sub(self.now_us)
    }
    fn reset_after_us(&self) -> u64 {
        if self.state.tokens >= self.kernel.full() {
            return 0;
        }
        self.kernel.fresh_at_us(self.state).saturating_sub(self.now_us)
    }
}
