//! The undo of a grant: gives back what one grant took, but not the units that time has given back since. A settle
//! undoes what an estimate took too much, and a request over several slots of a cluster undoes its charges when it is
//! denied.
//!
//! A grant is known by an id, which the counter has after the grant. These functions do the same as mode UNDO of the
//! scripts of Redis.

use std::num::NonZeroU32;

use super::{
    Attempt, CounterReading, Gcra, IntervalBucket, Kernel, Log, SlidingLog, State, Tat, TokenState, Verdict,
};
use crate::LONGEST_REFILL_US;
use crate::request::{Cost, Grant};

/// An undo in a sliding log writes the entries after the grant again, if they are fewer than this number. Otherwise it
/// is not made, and the units stay recorded.
pub const UNDO_SEARCH: usize = 64;

/// Which units of which grant are given back, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The store's time, microseconds since the epoch.
    pub now_us: u64,
    pub units: u64,
    pub grant: Grant,
}

impl Undo {
    /// `None` if the cost is not of one grant ([`Cost::undo`]).
    pub(super) fn from_attempt(attempt: Attempt) -> Option<Self> {
        let Attempt { now_us, cost } = attempt;
        Some(Self { now_us, units: cost.refunded(), grant: cost.grant()? })
    }

    /// Time from the grant to the undo.
    fn passed_us(self) -> u64 {
        self.now_us.saturating_sub(self.grant.id)
    }
}

impl Kernel {
    /// The grant that left this reading, and took this many units. Its id is the index or the start of the window, the
    /// time of the last refill or of the entry in the log. For GCRA it is the theoretical arrival time before the
    /// grant, or the time of the grant if that was later. `None` for a kernel without a counter, and for the reading of
    /// another kernel.
    #[must_use]
    pub fn grant(&self, reading: &CounterReading, units: u64) -> Option<Grant> {
        let id = match self {
            Self::FixedWindow(_) => reading.window().map(|state| state.index),
            Self::CalendarWindow(_) => reading.calendar().map(|state| state.start_us),
            Self::SlidingWindow(_) => reading.buckets().map(|state| state.index),
            Self::SlidingLog(_) => reading.log().map(|log| log.newest_us),
            Self::Gcra(k) => reading.tat().map(|tat| k.grant_base_us(tat, units)),
            Self::IntervalBucket(_) => reading.tokens().map(|state| state.start_us),
            Self::Blocked(_) => None,
        };
        let limit = if let Self::Gcra(k) = self { u32::try_from(k.limit()).ok() } else { None };
        id.map(|id| Grant { id, limit: limit.and_then(NonZeroU32::new) })
    }

    /// Whether an undo with this cost has given units back, by the counter after it.
    #[must_use]
    pub fn has_returned(&self, reading: &CounterReading, attempt: Attempt) -> bool {
        let Some(undo) = Undo::from_attempt(attempt) else { return false };
        let returned = match self {
            Self::FixedWindow(_) => reading.window().map(|state| state.index == undo.grant.id),
            Self::CalendarWindow(_) => reading.calendar().map(|state| state.start_us == undo.grant.id),
            Self::SlidingWindow(_) => reading.buckets().map(|state| {
                state.index == undo.grant.id || state.index.checked_sub(1) == Some(undo.grant.id)
            }),
            Self::SlidingLog(k) => {
                let expires_us = undo.grant.id.saturating_add(k.window_us());
                reading.log().map(|log| expires_us > log.newest_us.max(undo.now_us))
            }
            Self::Gcra(k) => Some(k.undone_drain(undo) > Tat::default()),
            Self::IntervalBucket(k) => reading.tokens().map(|state| {
                // A bucket that is full now has forgotten when its last interval started.
                let is_full = state.tokens.cast_unsigned() == k.capacity();
                let start_us =
                    if is_full { undo.now_us - undo.passed_us() % k.interval_us() } else { state.start_us };
                k.undone_tokens(start_us, undo) > 0
            }),
            Self::Blocked(_) => None,
        };
        returned.unwrap_or(false)
    }

    /// Whether recording a cost changes the counter: `false` for an undo that finds nothing to give back. The store
    /// then leaves the counter as it is.
    #[must_use]
    pub fn is_changed_by(&self, state: Option<&State>, attempt: Attempt) -> bool {
        let Some(undo) = Undo::from_attempt(attempt) else { return true };
        match self {
            Self::FixedWindow(k) => {
                k.advanced_to(state.and_then(State::window), undo.now_us).index == undo.grant.id
            }
            Self::CalendarWindow(k) => {
                k.advanced_to(state.and_then(State::calendar), undo.now_us).start_us == undo.grant.id
            }
            Self::SlidingWindow(k) => {
                let index = k.advanced_to(state.and_then(State::buckets), undo.now_us).index;
                index == undo.grant.id || index.checked_sub(1) == Some(undo.grant.id)
            }
            // Expired entries are removed in any case.
            Self::SlidingLog(_) => true,
            Self::Gcra(k) => k.undone_drain(undo) > Tat::default(),
            Self::IntervalBucket(k) => {
                let start_us = k.advanced_to(state.and_then(State::tokens), undo.now_us).start_us;
                k.undone_tokens(start_us, undo) > 0
            }
            Self::Blocked(_) => false,
        }
    }

    /// A refund fits, except for an undo in a log with too many later entries.
    pub(super) fn refund_verdict(&self, state: Option<&State>, attempt: Attempt) -> Verdict {
        match (self, Undo::from_attempt(attempt), state.and_then(State::log)) {
            (Self::SlidingLog(k), Some(undo), Some(log)) if k.is_too_far_back(log, undo) => Verdict::Over,
            _ => Verdict::Fits,
        }
    }

    /// The counter after an undo; `None` for a kernel without a counter.
    pub(super) fn undone(&self, state: Option<State>, undo: Undo) -> Option<State> {
        let (old, now_us) = (state.as_ref(), undo.now_us);
        Some(match self {
            Self::FixedWindow(k) => {
                let state = k.advanced_to(old.and_then(State::window), now_us);
                State::Window(match state.index == undo.grant.id {
                    true => k.record(state, Cost::refund(undo.units)),
                    false => state,
                })
            }
            Self::CalendarWindow(k) => {
                let state = k.advanced_to(old.and_then(State::calendar), now_us);
                State::Calendar(match state.start_us == undo.grant.id {
                    true => k.record(state, Cost::refund(undo.units)),
                    false => state,
                })
            }
            Self::SlidingWindow(k) => {
                let mut state = k.advanced_to(old.and_then(State::buckets), now_us);
                if state.index == undo.grant.id {
                    state.current = state.current.saturating_sub(undo.units);
                } else if state.index.checked_sub(1) == Some(undo.grant.id) {
                    state.previous = state.previous.saturating_sub(undo.units);
                }
                State::Buckets(state)
            }
            Self::SlidingLog(k) => {
                let mut log = state.and_then(State::into_log).unwrap_or_default();
                log.prune(k.first_in_window(&log, now_us));
                if !k.is_too_far_back(&log, undo) {
                    log.refund_until(log.entries_until(undo.grant.id), undo.units);
                }
                State::Log(log)
            }
            Self::Gcra(k) => State::Tat(k.undone(k.load(old.and_then(State::tat)), undo)),
            Self::IntervalBucket(k) => {
                let state = k.advanced_to(old.and_then(State::tokens), now_us);
                let tokens = (state.tokens + k.undone_tokens(state.start_us, undo).cast_signed())
                    .min(k.capacity().cast_signed());
                State::Tokens(TokenState { tokens, ..state })
            }
            Self::Blocked(_) => return None,
        })
    }
}

impl IntervalBucket {
    /// The tokens that an undo gives back: those of the grant without those that the intervals since then have added.
    /// `start_us` is the start of the current interval.
    fn undone_tokens(&self, start_us: u64, undo: Undo) -> u64 {
        let intervals = start_us.saturating_sub(undo.grant.id).div_ceil(self.interval_us());
        undo.units.saturating_sub(intervals.saturating_mul(self.refill()))
    }
}

impl Gcra {
    fn undone(&self, tat: Tat, undo: Undo) -> Tat {
        let drain = self.undone_drain(undo);
        if drain == Tat::default() {
            return tat;
        }
        let now = Tat { whole_us: undo.now_us, fraction: 0 };
        self.minus(tat, drain).map_or(now, |tat| tat.max(now))
    }

    /// The time in which units of this grant drain, at the rate of the limit that granted them: what the grant added to
    /// the arrival time. In units of this kernel's denominator, rounded down.
    #[must_use]
    pub fn drain_of_grant(&self, units: u64, grant: Grant) -> Tat {
        let limit = u128::from(grant.limit.map_or(self.limit(), |limit| u64::from(limit.get())));
        let ticks = u128::from(units) * u128::from(self.period_us());
        // A counter never records more than twice the longest refill, so nothing is lost of a grant.
        let whole_us = u64::try_from(ticks / limit).unwrap_or(u64::MAX).min(2 * LONGEST_REFILL_US);
        let fraction = ticks % limit * u128::from(self.denominator()) / limit;
        Tat { whole_us, fraction: u64::try_from(fraction).expect("below the denominator") }
    }

    /// The time that an undo gives back: that in which its units drain without the time since the grant. 0 if all of
    /// them have drained.
    fn undone_drain(&self, undo: Undo) -> Tat {
        let drain = self.drain_of_grant(undo.units, undo.grant);
        let whole_us = drain.whole_us.checked_sub(undo.passed_us());
        whole_us.map_or(Tat::default(), |whole_us| Tat { whole_us, ..drain })
    }
}

impl SlidingLog {
    /// Whether the grant is in the window, with too many entries after it.
    fn is_too_far_back(&self, log: &Log, undo: Undo) -> bool {
        let until = log.entries_until(undo.grant.id);
        until > self.first_in_window(log, undo.now_us) && log.len() - until >= UNDO_SEARCH
    }
}
