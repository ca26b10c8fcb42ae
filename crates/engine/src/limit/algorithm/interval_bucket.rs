//! Token bucket that refills once per interval. An interval of length d admits at most `capacity + refill * ceil(d /
//! interval)` units.

use super::attempt::{Attempt, Cost, CounterView, Report, Verdict};
use super::undo::Undo;

/// `refill` whole tokens every `interval_us`, up to `capacity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntervalBucket {
    /// 1 to 2^32 - 1 tokens.
    pub capacity: u64,
    /// 1 to 2^32 - 1 tokens.
    pub refill: u64,
    /// 1 us to 366 days.
    pub interval_us: u64,
}

/// A full bucket has no current interval: the next take starts one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenState {
    /// Tokens left; negative after postpaid hits beyond the capacity.
    pub tokens: i64,
    /// Start of the current interval, microseconds since the epoch.
    pub start_us: u64,
}

impl IntervalBucket {
    pub fn new(capacity: u64, refill: u64, interval_us: u64) -> Self {
        Self { capacity, refill, interval_us }
    }

    fn full(&self) -> i64 {
        self.capacity.cast_signed()
    }

    fn intervals(&self, state: TokenState, tokens: i64) -> u64 {
        (tokens - state.tokens).max(0).unsigned_abs().div_ceil(self.refill)
    }

    /// Returns the state at `now_us`, advanced by whole intervals.
    pub(super) fn advanced_to(&self, state: Option<TokenState>, now_us: u64) -> TokenState {
        let Some(state) = state else {
            return TokenState { tokens: self.full(), start_us: now_us };
        };
        let effective_us = now_us.max(state.start_us);
        let passed = (effective_us - state.start_us) / self.interval_us;
        // Compared before the multiplication, which would overflow after a long idle time.
        if passed >= self.intervals(state, self.full()) {
            return TokenState { tokens: self.full(), start_us: now_us };
        }
        TokenState {
            tokens: state.tokens + (passed * self.refill).cast_signed(),
            start_us: state.start_us + passed * self.interval_us,
        }
    }

    pub(super) fn fits(&self, state: TokenState, needed: u64) -> bool {
        needed.cast_signed() <= state.tokens
    }

    pub(super) fn record(&self, state: TokenState, cost: Cost) -> TokenState {
        let lowest = (-self.full()).min(state.tokens);
        let tokens = (state.tokens - cost.units()).clamp(lowest, self.full());
        TokenState { tokens, ..state }
    }

    fn holds_at_us(&self, state: TokenState, tokens: i64) -> u64 {
        state.start_us + self.intervals(state, tokens) * self.interval_us
    }

    pub(super) fn unused_from_us(&self, state: TokenState) -> u64 {
        if state.tokens < self.full() { self.holds_at_us(state, self.full()) } else { 0 }
    }

    pub(super) fn report(&self, state: TokenState, attempt: Attempt, verdict: Verdict) -> Report {
        let holds_after_us = |state, tokens| self.holds_at_us(state, tokens).saturating_sub(attempt.now_us);
        let view = CounterView {
            max_cost: self.capacity,
            remaining: state.tokens.max(0).unsigned_abs(),
            reset_after_us: self.unused_from_us(state).saturating_sub(attempt.now_us),
            wait_us: |units: u64| holds_after_us(state, units.cast_signed()),
            longest_wait_us: || {
                // A full bucket starts its interval when it is next used, whatever its state says.
                let is_full = state.tokens >= self.full();
                let start_us = if is_full { attempt.now_us } else { state.start_us };
                holds_after_us(TokenState { tokens: 0, start_us }, self.full())
            },
        };
        view.report(attempt.cost, verdict)
    }

    /// Returns the tokens that an undo adds: those of the grant, minus those refilled since. `start_us` is the start of
    /// the current interval.
    pub(super) fn undone_tokens(&self, start_us: u64, undo: Undo) -> u64 {
        let intervals = start_us.saturating_sub(undo.grant.id).div_ceil(self.interval_us);
        undo.units.saturating_sub(intervals.saturating_mul(self.refill))
    }
}
