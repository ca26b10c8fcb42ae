//! One type for all kernels. A charge carries a [`Kernel`]: the memory store runs it, Redis runs its Lua version.
//!
//! Every `match` names every kernel, so the compiler finds each place to change for a new one. `matches!` is for one
//! kernel that is special.

mod places;

use std::fmt;
use std::num::NonZeroU32;

use strum::EnumCount;

use super::attempt::{Attempt, Cost, Grant, MAX_UNITS, Report, RetryAfter, Verdict, max_recorded};
use super::calendar_window::CalendarWindow;
use super::fixed_window::{Blocked, FixedWindow};
use super::gcra::{Gcra, Tat};
use super::interval_bucket::{IntervalBucket, TokenState};
use super::sliding_log::SlidingLog;
use super::sliding_window::SlidingWindow;
use super::slots::Slots;
use super::state::{CounterReading, State};
use super::undo::Undo;

/// Reports a counter that another kernel wrote as blocked. Fingerprints in the keys keep such counters apart, so no
/// request reads one.
const UNKNOWN: Blocked = Blocked::new(1);

/// An algorithm with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumCount)]
pub enum Kernel {
    FixedWindow(FixedWindow),
    CalendarWindow(CalendarWindow),
    /// Estimates a sliding window from two counts.
    SlidingWindow(SlidingWindow),
    /// Logs every grant.
    SlidingLog(SlidingLog),
    /// GCRA, continuous token bucket, leaky bucket.
    Gcra(Gcra),
    /// Token bucket that refills once per interval.
    IntervalBucket(IntervalBucket),
    /// Concurrency: slots are released by requests, or end by themselves.
    Slots(Slots),
    /// A limit of 0.
    Blocked(Blocked),
}

impl Kernel {
    /// For tests that pick from all kinds.
    pub const KINDS: usize = Self::COUNT;

    /// Returns whether the cost fits, without recording it. `None` is an unused counter. A refund fits, except for an
    /// undo that is too far back ([`UNDO_SEARCH`](super::UNDO_SEARCH)).
    pub fn verdict(&self, state: Option<&State>, attempt: Attempt) -> Verdict {
        let Attempt { now_us, cost } = attempt;
        if cost.is_refund() {
            return self.refund_verdict(state, attempt);
        }
        let needed = cost.needed();
        let fits = match self {
            Self::FixedWindow(k) => k.fits(k.advanced_to(state.and_then(State::window), now_us), needed),
            Self::CalendarWindow(k) => k.fits(k.advanced_to(state.and_then(State::calendar), now_us), needed),
            Self::SlidingWindow(k) => {
                k.fits(k.advanced_to(state.and_then(State::buckets), now_us), now_us, needed)
            }
            Self::SlidingLog(k) => k.fits(state.and_then(State::log), now_us, needed),
            Self::Gcra(k) => k.fits(k.load(state.and_then(State::tat)), now_us, needed),
            Self::IntervalBucket(k) => k.fits(k.advanced_to(state.and_then(State::tokens), now_us), needed),
            Self::Slots(k) => k.fits(state.and_then(State::slots), attempt),
            Self::Blocked(_) => false,
        };
        if fits { Verdict::Fits } else { Verdict::Over }
    }

    /// Returns the counter after recording the cost; `None` for a kernel without a counter.
    pub fn recorded(&self, state: Option<State>, attempt: Attempt) -> Option<State> {
        let Attempt { now_us, cost } = attempt;
        if let Some(undo) = Undo::from_attempt(attempt).filter(|_| self.is_freed_by_time()) {
            return self.undone(state, undo);
        }
        let old = state.as_ref();
        Some(match self {
            Self::FixedWindow(k) => {
                State::Window(k.record(k.advanced_to(old.and_then(State::window), now_us), cost))
            }
            Self::CalendarWindow(k) => {
                State::Calendar(k.record(k.advanced_to(old.and_then(State::calendar), now_us), cost))
            }
            Self::SlidingWindow(k) => {
                State::Buckets(k.record(k.advanced_to(old.and_then(State::buckets), now_us), cost))
            }
            Self::SlidingLog(k) => {
                State::Log(k.record(state.and_then(State::into_log).unwrap_or_default(), attempt))
            }
            Self::Gcra(k) => State::Tat(k.record(k.load(old.and_then(State::tat)), attempt)),
            Self::IntervalBucket(k) => {
                State::Tokens(k.record(k.advanced_to(old.and_then(State::tokens), now_us), cost))
            }
            Self::Slots(k) => {
                State::Slots(k.record(state.and_then(State::into_slots).unwrap_or_default(), attempt))
            }
            Self::Blocked(_) => return None,
        })
    }

    /// Extracts what a report needs from the state.
    pub fn reading(&self, state: Option<&State>, attempt: Attempt) -> CounterReading {
        let now_us = attempt.now_us;
        match self {
            Self::FixedWindow(k) => {
                CounterReading::Window(k.advanced_to(state.and_then(State::window), now_us))
            }
            Self::CalendarWindow(k) => {
                CounterReading::Calendar(k.advanced_to(state.and_then(State::calendar), now_us))
            }
            Self::SlidingWindow(k) => {
                CounterReading::Buckets(k.advanced_to(state.and_then(State::buckets), now_us))
            }
            Self::SlidingLog(k) => CounterReading::Log(k.reading(state.and_then(State::log), attempt)),
            Self::Gcra(k) => CounterReading::Tat(k.load(state.and_then(State::tat))),
            Self::IntervalBucket(k) => {
                CounterReading::Tokens(k.advanced_to(state.and_then(State::tokens), now_us))
            }
            Self::Slots(k) => CounterReading::Slots(k.reading(state.and_then(State::slots), now_us)),
            Self::Blocked(_) => CounterReading::Nothing,
        }
    }

    /// Reports a decision. `reading` is taken after the decision; the reading of another kernel is reported as blocked.
    /// An undo that was not possible is reported like one that was: it does not wait.
    pub fn report(&self, reading: &CounterReading, attempt: Attempt, verdict: Verdict) -> Report {
        let verdict = if attempt.cost.is_refund() { Verdict::Fits } else { verdict };
        let blocked = || UNKNOWN.report(attempt, verdict);
        match self {
            Self::FixedWindow(k) => reading.window().map_or_else(blocked, |s| k.report(s, attempt, verdict)),
            Self::CalendarWindow(k) => {
                reading.calendar().map_or_else(blocked, |s| k.report(s, attempt, verdict))
            }
            Self::SlidingWindow(k) => {
                reading.buckets().map_or_else(blocked, |s| k.report(s, attempt, verdict))
            }
            Self::SlidingLog(k) => reading.log().map_or_else(blocked, |s| k.report(s, attempt, verdict)),
            Self::Gcra(k) => reading.tat().map_or_else(blocked, |s| k.report(s, attempt, verdict)),
            Self::IntervalBucket(k) => {
                reading.tokens().map_or_else(blocked, |s| k.report(s, attempt, verdict))
            }
            Self::Slots(k) => reading.slots().map_or_else(blocked, |s| k.report(s, attempt.now_us, verdict)),
            Self::Blocked(k) => k.report(attempt, verdict),
        }
    }

    /// Returns the reading at a later time if the counter stays untouched; `None` if `reading` does not determine it.
    /// The reading of a log stays tied to the cost that it was made for ([`Kernel::reading_depends_on_cost`]).
    pub fn reading_later(&self, reading: &CounterReading, now_us: u64) -> Option<CounterReading> {
        match self {
            Self::FixedWindow(k) => {
                reading.window().map(|state| CounterReading::Window(k.advanced_to(Some(state), now_us)))
            }
            Self::CalendarWindow(k) => {
                reading.calendar().map(|state| CounterReading::Calendar(k.advanced_to(Some(state), now_us)))
            }
            Self::SlidingWindow(k) => {
                reading.buckets().map(|state| CounterReading::Buckets(k.advanced_to(Some(state), now_us)))
            }
            Self::SlidingLog(k) => {
                reading.log().filter(|log| k.is_unchanged_until(*log, now_us)).map(CounterReading::Log)
            }
            Self::Gcra(k) => reading.tat().map(|tat| CounterReading::Tat(k.load(Some(tat)))),
            Self::IntervalBucket(k) => {
                reading.tokens().map(|state| CounterReading::Tokens(k.advanced_to(Some(state), now_us)))
            }
            // A release may change it.
            Self::Slots(_) => None,
            Self::Blocked(_) => (*reading == CounterReading::Nothing).then_some(CounterReading::Nothing),
        }
    }

    /// Returns `true` if a reading for one cost and limit is useless for another cost or limit.
    pub fn reading_depends_on_cost(&self) -> bool {
        matches!(self, Self::SlidingLog(_))
    }

    /// `true` if only time frees units, so that a denial holds until then. Releases free slots as well.
    pub fn is_freed_by_time(&self) -> bool {
        !matches!(self, Self::Slots(_))
    }

    /// Returns `true` if a denied cost that should be recorded may stay unrecorded, because no later decision changes,
    /// even if callers return all admitted units. Only fixed windows qualify: their end discards the debt. A window
    /// admits at most the limit, so it stays exhausted once the debt reaches the limit. A peek records nothing.
    pub fn may_stay_unrecorded(&self, reading: &CounterReading, cost: Cost) -> bool {
        // A fixed window has used the same at any time.
        let used = || self.used(reading, 0);
        let enough = if cost.changes_counter() { 2 } else { 1 };
        matches!(self, Self::FixedWindow(_) | Self::CalendarWindow(_)) && used() >= enough * self.max_cost()
    }

    /// Returns how long the cost must wait to fit, by this reading.
    pub fn wait(&self, reading: &CounterReading, attempt: Attempt) -> RetryAfter {
        let report = self.report(reading, attempt, Verdict::Fits);
        // A counter in debt admits only refunds, even if a cost needs no free unit.
        let is_in_debt = report.over_by > 0 && !attempt.cost.is_refund();
        if attempt.cost.needed() <= report.remaining && !is_in_debt {
            return RetryAfter::Now;
        }
        self.report(reading, attempt, Verdict::Over).retry_after
    }

    /// Returns the instant (microseconds since the epoch) from which the counter equals an unused one; not in the
    /// future if nothing is used.
    pub fn unused_from_us(&self, state: &State) -> u64 {
        let unused_from_us = match self {
            Self::FixedWindow(k) => state.window().map(|state| k.unused_from_us(state)),
            Self::CalendarWindow(k) => state.calendar().map(|state| k.unused_from_us(state)),
            Self::SlidingWindow(k) => state.buckets().map(|state| k.unused_from_us(state)),
            Self::SlidingLog(k) => state.log().map(|log| k.unused_from_us(log)),
            Self::Gcra(_) => state.tat().map(|tat| tat.unused_from_us()),
            Self::IntervalBucket(k) => state.tokens().map(|state| k.unused_from_us(state)),
            Self::Slots(k) => state.slots().map(|slots| k.unused_from_us(slots)),
            Self::Blocked(_) => None,
        };
        unused_from_us.unwrap_or(0)
    }

    /// Returns the limit for one of `instances` that count separately: limit, burst and refill divided and rounded up,
    /// so that none becomes 0. Together they may exceed the whole limit by at most one unit each.
    pub fn share_of(&self, instances: NonZeroU32) -> Self {
        let share = |whole: u64| whole.div_ceil(u64::from(instances.get()));
        let mut shared = *self;
        match &mut shared {
            Self::FixedWindow(FixedWindow { limit, .. })
            | Self::CalendarWindow(CalendarWindow { limit, .. })
            | Self::SlidingWindow(SlidingWindow { limit, .. })
            | Self::SlidingLog(SlidingLog { limit, .. })
            | Self::Slots(Slots { limit, .. }) => *limit = share(*limit),
            Self::Gcra(k) => *k = Gcra::new(share(k.limit), k.period_us, share(k.burst), k.pacing),
            Self::IntervalBucket(k) => (k.capacity, k.refill) = (share(k.capacity), share(k.refill)),
            Self::Blocked(_) => {}
        }
        shared
    }

    /// Returns `true` if the kernel has a counter, and so a key in the store. A blocked limit has none.
    pub fn has_counter(&self) -> bool {
        !matches!(self, Self::Blocked(_))
    }

    /// Returns the kind of the kernel and its period. It is part of the counter's key, so that no kernel reads a state
    /// of another meaning. Limit and burst are left out, because units, times and instants mean the same for any limit.
    /// The tokens left in an interval bucket depend on all its parameters, so all are included.
    pub fn fingerprint(&self) -> String {
        match self {
            Self::FixedWindow(k) => format!("fw:{}", k.window_us),
            Self::CalendarWindow(k) => {
                format!("fw:c:{}", k.boundaries().map(|at_us| at_us.to_string()).join("/"))
            }
            Self::SlidingWindow(k) => format!("sw:{}", k.window_us),
            Self::SlidingLog(k) => format!("sl:{}", k.window_us),
            Self::Gcra(k) => format!("gc:{}", k.period_us),
            Self::IntervalBucket(k) => format!("ib:{}/{}/{}", k.refill, k.interval_us, k.capacity),
            // The end of a slot is in its state.
            Self::Slots(_) => "co".to_owned(),
            Self::Blocked(k) => format!("no:{}", k.window_us),
        }
    }

    /// Returns the parameters that the fingerprint omits, as a suffix for it; empty if there are none.
    pub fn numbers(&self) -> String {
        match self {
            Self::FixedWindow(k) => format!("/{}", k.limit),
            Self::CalendarWindow(k) => format!("/{}", k.limit),
            Self::SlidingWindow(k) => format!("/{}", k.limit),
            Self::SlidingLog(k) => format!("/{}", k.limit),
            Self::Gcra(k) => format!("/{}/{}", k.limit, k.burst),
            Self::Slots(k) => format!("/{}/{}", k.limit, k.hold_us),
            Self::IntervalBucket(_) => String::new(),
            // Never empty, so that a block without an end differs from one with an end.
            Self::Blocked(k) => format!("/{}", k.until_us.unwrap_or(0)),
        }
    }

    /// Period of the limit in microseconds; `None` for a kernel without a counter.
    pub fn period_us(&self) -> Option<u64> {
        match self {
            Self::FixedWindow(k) => Some(k.window_us),
            Self::CalendarWindow(k) => Some(k.length_us()),
            Self::SlidingWindow(k) => Some(k.window_us),
            Self::SlidingLog(k) => Some(k.window_us),
            Self::Gcra(k) => Some(k.period_us),
            Self::IntervalBucket(k) => Some(k.interval_us),
            Self::Slots(k) => Some(k.hold_us),
            Self::Blocked(_) => None,
        }
    }

    /// Returns the most units that a counter holds, also above the limit: costs that go further are cut off. Only
    /// windows that end at a fixed time keep all.
    pub fn most_recorded(&self) -> u64 {
        match self {
            Self::FixedWindow(_) | Self::CalendarWindow(_) => MAX_UNITS,
            Self::SlidingWindow(_) | Self::SlidingLog(_) | Self::Gcra(_) | Self::IntervalBucket(_) => {
                max_recorded(self.max_cost())
            }
            Self::Slots(_) | Self::Blocked(_) => 0,
        }
    }

    /// Returns the largest cost that can ever fit. For the kernel of a limit this is
    /// [`LimitSpec::capacity`](crate::LimitSpec::capacity), except that a blocked limit has 0.
    pub fn max_cost(&self) -> u64 {
        match self {
            Self::FixedWindow(k) => k.limit,
            Self::CalendarWindow(k) => k.limit,
            Self::SlidingWindow(k) => k.limit,
            Self::SlidingLog(k) => k.limit,
            Self::Gcra(k) => k.burst,
            Self::IntervalBucket(k) => k.capacity,
            Self::Slots(k) => k.limit,
            Self::Blocked(_) => 0,
        }
    }

    /// Returns the units used at `now_us`, also those above the limit; 0 for a kernel without a counter, and for the
    /// reading of another kernel.
    pub fn used(&self, reading: &CounterReading, now_us: u64) -> u64 {
        let used = match self {
            Self::FixedWindow(_) => reading.window().map(|state| state.count),
            Self::CalendarWindow(_) => reading.calendar().map(|state| state.count),
            Self::SlidingWindow(k) => reading.buckets().map(|state| k.used(state, now_us)),
            Self::SlidingLog(_) => reading.log().map(|log| log.used),
            Self::Gcra(k) => reading.tat().map(|tat| k.used(tat, now_us)),
            Self::IntervalBucket(k) => {
                reading.tokens().map(|state| (k.capacity.cast_signed() - state.tokens).max(0).unsigned_abs())
            }
            Self::Slots(_) => reading.slots().map(|slots| slots.open),
            Self::Blocked(_) => None,
        };
        used.unwrap_or(0)
    }

    /// Returns start and end of a reading's window, microseconds since the epoch; `None` for a kernel without fixed
    /// windows.
    pub fn window_us(&self, reading: &CounterReading) -> Option<(u64, u64)> {
        match self {
            Self::FixedWindow(k) => {
                reading.window().map(|state| (state.index * k.window_us, k.end_us(state)))
            }
            Self::CalendarWindow(k) => reading.calendar().map(|state| (state.start_us, k.end_us(state))),
            Self::SlidingWindow(_)
            | Self::SlidingLog(_)
            | Self::Gcra(_)
            | Self::IntervalBucket(_)
            | Self::Slots(_)
            | Self::Blocked(_) => None,
        }
    }

    /// Returns the grant of `units` that produced this reading. Its id is the index or start of the window, or the time
    /// of the last refill or log entry. For GCRA it is the TAT before the grant, or the time of the grant if that was
    /// later. `None` for a kernel without a counter, for the reading of another kernel, and for slots, which
    /// [`Charge::grant`](crate::Charge::grant) returns.
    pub fn grant(&self, reading: &CounterReading, units: u64) -> Option<Grant> {
        let id = match self {
            Self::FixedWindow(_) => reading.window().map(|state| state.index),
            Self::CalendarWindow(_) => reading.calendar().map(|state| state.start_us),
            Self::SlidingWindow(_) => reading.buckets().map(|state| state.index),
            Self::SlidingLog(_) => reading.log().map(|log| log.newest_us),
            Self::Gcra(k) => reading.tat().map(|tat| k.grant_base_us(tat, units)),
            Self::IntervalBucket(_) => reading.tokens().map(|state| state.start_us),
            Self::Slots(_) | Self::Blocked(_) => None,
        };
        let limit = if let Self::Gcra(k) = self { u32::try_from(k.limit).ok() } else { None };
        id.map(|id| Grant { id, limit: limit.and_then(NonZeroU32::new) })
    }

    /// Returns `true` if an undo with this cost returned units, judging by the counter after it.
    pub fn has_returned(&self, reading: &CounterReading, attempt: Attempt) -> bool {
        let Some(undo) = Undo::from_attempt(attempt) else { return false };
        let returned = match self {
            Self::FixedWindow(_) => reading.window().map(|state| state.index == undo.grant.id),
            Self::CalendarWindow(_) => reading.calendar().map(|state| state.start_us == undo.grant.id),
            Self::SlidingWindow(_) => reading.buckets().map(|state| {
                state.index == undo.grant.id || state.index.checked_sub(1) == Some(undo.grant.id)
            }),
            Self::SlidingLog(k) => {
                let expires_us = undo.grant.id.saturating_add(k.window_us);
                reading.log().map(|log| expires_us > log.newest_us.max(undo.now_us))
            }
            Self::Gcra(k) => Some(k.undone_drain(undo) > Tat::default()),
            Self::IntervalBucket(k) => reading.tokens().map(|state| {
                // A full bucket has forgotten when its last interval started.
                let is_full = state.tokens.cast_unsigned() == k.capacity;
                let start_us =
                    if is_full { undo.now_us - undo.passed_us() % k.interval_us } else { state.start_us };
                k.undone_tokens(start_us, undo) > 0
            }),
            Self::Slots(_) => reading.slots().map(|slots| slots.removed > 0),
            Self::Blocked(_) => None,
        };
        returned.unwrap_or(false)
    }

    /// Returns `false` for an undo that finds nothing to return: the store then leaves the counter alone.
    pub fn is_changed_by(&self, state: Option<&State>, attempt: Attempt) -> bool {
        let Some(undo) = Undo::from_attempt(attempt) else { return true };
        match self {
            // Expired entries are removed in any case, and a release that finds no slot is noted.
            Self::SlidingLog(_) | Self::Slots(_) => true,
            Self::IntervalBucket(k) => {
                let start_us = k.advanced_to(state.and_then(State::tokens), undo.now_us).start_us;
                k.undone_tokens(start_us, undo) > 0
            }
            // An undo does not change what the answer depends on.
            Self::FixedWindow(_)
            | Self::CalendarWindow(_)
            | Self::SlidingWindow(_)
            | Self::Gcra(_)
            | Self::Blocked(_) => self.has_returned(&self.reading(state, attempt), attempt),
        }
    }

    /// A refund fits, except for an undo in a log with too many later entries.
    fn refund_verdict(&self, state: Option<&State>, attempt: Attempt) -> Verdict {
        match (self, Undo::from_attempt(attempt), state.and_then(State::log)) {
            (Self::SlidingLog(k), Some(undo), Some(log)) if k.is_too_far_back(log, undo) => Verdict::Over,
            _ => Verdict::Fits,
        }
    }

    /// Returns the counter after an undo; `None` for a kernel without a counter.
    fn undone(&self, state: Option<State>, undo: Undo) -> Option<State> {
        let (old, now_us) = (state.as_ref(), undo.now_us);
        Some(match self {
            Self::FixedWindow(k) => {
                let state = k.advanced_to(old.and_then(State::window), now_us);
                State::Window(if state.index == undo.grant.id {
                    k.record(state, Cost::refund(undo.units))
                } else {
                    state
                })
            }
            Self::CalendarWindow(k) => {
                let state = k.advanced_to(old.and_then(State::calendar), now_us);
                State::Calendar(if state.start_us == undo.grant.id {
                    k.record(state, Cost::refund(undo.units))
                } else {
                    state
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
                    .min(k.capacity.cast_signed());
                State::Tokens(TokenState { tokens, ..state })
            }
            Self::Slots(_) | Self::Blocked(_) => return None,
        })
    }
}

/// Fingerprint and [`Kernel::numbers`]: all parameters.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.fingerprint(), self.numbers())
    }
}
