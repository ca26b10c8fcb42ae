//! The five kernels: exact integer decisions on one counter.
//!
//! Each kernel says whether a cost fits, what the counter is afterwards, and where the limit then stands. The memory
//! store runs them as they are; the Redis store runs the same rules in Lua and reports through the same functions.
//! A state that has run out, a missing one and a fresh one give the same answers, so expiry is only housekeeping.

mod fixed_window;
mod gcra;
mod interval_bucket;
mod sliding_log;
mod sliding_window;

#[cfg(test)]
mod known_answers;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod testing;

use std::fmt;
use std::num::NonZeroU32;

use super::{Cost, Report, RetryAfter, Verdict};

pub use fixed_window::{FixedWindow, WindowState};
pub use gcra::{Gcra, Tat};
pub use interval_bucket::{IntervalBucket, TokenState};
pub use sliding_log::{Log, LogFacts, SlidingLog};
pub use sliding_window::{BucketState, SlidingWindow};

/// The longest an empty bucket may take to fill: 10 years of 365 days, below 2^49 us.
pub const LONGEST_REFILL_US: u64 = 10 * 365 * 86_400 * 1_000_000;

/// The largest limit of a sliding log, which keeps one entry per grant.
pub const MAX_LOG_LIMIT: u64 = 10_000;

/// So many grants take as much memory as a counter without any, its key included.
const GRANTS_OF_A_COUNTER: usize = 16;

/// A limit that admits nothing and whose algorithm has no rate to divide by. It keeps no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked;

/// An algorithm with its numbers worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Epoch-aligned windows.
    FixedWindow(FixedWindow),
    /// Two-bucket counter.
    SlidingWindow(SlidingWindow),
    /// Exact log.
    SlidingLog(SlidingLog),
    /// GCRA, continuous token bucket, leaky bucket.
    Gcra(Gcra),
    /// Token bucket that refills whole intervals at a time.
    IntervalBucket(IntervalBucket),
    /// A bucket with a limit of 0.
    Blocked(Blocked),
}

/// What is kept of one counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a fixed window.
    Window(WindowState),
    /// Of a sliding window.
    Buckets(BucketState),
    /// Of a sliding log.
    Log(Log),
    /// Of GCRA.
    Tat(Tat),
    /// Of an interval bucket.
    Tokens(TokenState),
}

impl State {
    /// What it takes of memory, in small counters: a log's grants come on top of the one that all states take.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self {
            Self::Log(log) => 1 + log.room() / GRANTS_OF_A_COUNTER,
            _ => 1,
        }
    }
}

/// What a report needs to know of a counter: its state, or for a log the few entries that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Facts {
    /// Of a fixed window.
    Window(WindowState),
    /// Of a sliding window.
    Buckets(BucketState),
    /// Of a sliding log.
    Log(LogFacts),
    /// Of GCRA.
    Tat(Tat),
    /// Of an interval bucket.
    Tokens(TokenState),
    /// Of a limit that keeps no state.
    Nothing,
}

/// What is asked of a counter, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The caller's time, microseconds since the epoch, below 2^52.
    pub now_us: u64,
    /// The units.
    pub cost: Cost,
}

/// A counter's standing as its kernel reads it; [`report`] turns it into what a caller sees.
trait Reading {
    /// The largest cost that can ever fit.
    fn max_cost(&self) -> u64;
    /// Units that could be taken now.
    fn remaining(&self) -> u64;
    /// Least wait after which `units` fit; asked only for `remaining() < units <= max_cost()`.
    fn wait_us(&self, units: u64) -> u64;
    /// Wait until the counter is as if never used.
    fn reset_after_us(&self) -> u64;
}

fn report(reading: &impl Reading, cost: Cost, verdict: Verdict) -> Report {
    let (max_cost, remaining) = (reading.max_cost(), reading.remaining());
    let retry_after = match verdict {
        Verdict::Fits => RetryAfter::Now,
        Verdict::Over if cost.needed() > max_cost => RetryAfter::Never,
        Verdict::Over => RetryAfter::In(reading.wait_us(cost.needed())),
    };
    let reset_after_us = reading.reset_after_us();
    let next_after_us = if remaining >= max_cost { 0 } else { reading.wait_us(remaining + 1) };
    let until_reset_us = match retry_after {
        RetryAfter::In(us) => us,
        RetryAfter::Now | RetryAfter::Never => reset_after_us,
    };
    Report { remaining, retry_after, reset_after_us, next_after_us, delay_us: 0, until_reset_us, over_by: 0 }
}

impl Kernel {
    /// Whether the cost fits, the state unchanged. `None` is a counter never used.
    #[must_use]
    pub fn verdict(&self, state: Option<&State>, ask: Attempt) -> Verdict {
        if ask.cost.is_refund() {
            return Verdict::Fits;
        }
        let needed = ask.cost.needed();
        let fits = match (self, state) {
            (Self::FixedWindow(k), s) => k.fits(k.load(window(s), ask.now_us), needed),
            (Self::SlidingWindow(k), s) => k.fits(k.load(buckets(s), ask.now_us), ask.now_us, needed),
            (Self::SlidingLog(k), s) => k.fits(log(s), ask.now_us, needed),
            (Self::Gcra(k), s) => k.fits(tat(s), ask.now_us, needed),
            (Self::IntervalBucket(k), s) => k.fits(k.load(tokens(s), ask.now_us), needed),
            (Self::Blocked(_), _) => false,
        };
        if fits { Verdict::Fits } else { Verdict::Over }
    }

    /// The counter after the cost is recorded; `None` where there is nothing to keep.
    #[must_use]
    pub fn recorded(&self, state: Option<State>, ask: Attempt) -> Option<State> {
        let now_us = ask.now_us;
        Some(match self {
            Self::FixedWindow(k) => State::Window(k.record(k.load(window(state.as_ref()), now_us), ask.cost)),
            Self::SlidingWindow(k) => {
                State::Buckets(k.record(k.load(buckets(state.as_ref()), now_us), ask.cost))
            }
            Self::SlidingLog(k) => {
                let log = if let Some(State::Log(log)) = state { log } else { Log::default() };
                State::Log(k.record(log, ask))
            }
            Self::Gcra(k) => State::Tat(k.record(tat(state.as_ref()), ask)),
            Self::IntervalBucket(k) => {
                State::Tokens(k.record(k.load(tokens(state.as_ref()), now_us), ask.cost))
            }
            Self::Blocked(_) => return None,
        })
    }

    /// What a report needs of the state.
    #[must_use]
    pub fn facts(&self, state: Option<&State>, ask: Attempt) -> Facts {
        match self {
            Self::FixedWindow(k) => Facts::Window(k.load(window(state), ask.now_us)),
            Self::SlidingWindow(k) => Facts::Buckets(k.load(buckets(state), ask.now_us)),
            Self::SlidingLog(k) => Facts::Log(k.facts(log(state), ask)),
            Self::Gcra(_) => Facts::Tat(tat(state)),
            Self::IntervalBucket(k) => Facts::Tokens(k.load(tokens(state), ask.now_us)),
            Self::Blocked(_) => Facts::Nothing,
        }
    }

    /// Where the limit stands. `facts` are those after the decision, and of this kernel: others report a full limit.
    #[must_use]
    pub fn report(&self, facts: &Facts, ask: Attempt, verdict: Verdict) -> Report {
        match (self, facts) {
            (Self::FixedWindow(k), Facts::Window(state)) => k.report(*state, ask, verdict),
            (Self::SlidingWindow(k), Facts::Buckets(state)) => k.report(*state, ask, verdict),
            (Self::SlidingLog(k), Facts::Log(facts)) => k.report(facts, ask, verdict),
            (Self::Gcra(k), Facts::Tat(tat)) => k.report(*tat, ask, verdict),
            (Self::IntervalBucket(k), Facts::Tokens(state)) => k.report(*state, ask, verdict),
            _ => report(&Blocked, ask.cost, verdict),
        }
    }

    /// The facts at a later time if nothing happens to the counter until then; `None` where they do not tell. Those of a
    /// log still speak of the cost they were taken for.
    #[must_use]
    pub fn later(&self, facts: &Facts, now_us: u64) -> Option<Facts> {
        match (self, *facts) {
            (Self::FixedWindow(k), Facts::Window(state)) => Some(Facts::Window(k.load(Some(state), now_us))),
            (Self::SlidingWindow(k), Facts::Buckets(state)) => {
                Some(Facts::Buckets(k.load(Some(state), now_us)))
            }
            (Self::SlidingLog(k), Facts::Log(log)) => k.stands_at(&log, now_us).then_some(*facts),
            (Self::IntervalBucket(k), Facts::Tokens(state)) => {
                Some(Facts::Tokens(k.load(Some(state), now_us)))
            }
            (Self::Gcra(_), Facts::Tat(_)) | (Self::Blocked(_), Facts::Nothing) => Some(*facts),
            _ => None,
        }
    }

    /// When the cost would fit, on a counter that stands like this.
    #[must_use]
    pub fn wait(&self, facts: &Facts, ask: Attempt) -> RetryAfter {
        let standing = self.report(facts, ask, Verdict::Fits);
        if ask.cost.needed() <= standing.remaining {
            return RetryAfter::Now;
        }
        self.report(facts, ask, Verdict::Over).retry_after
    }

    /// The instant (microseconds since the epoch) from which on the state cannot be told from a missing one.
    #[must_use]
    pub fn fresh_at_us(&self, state: &State) -> u64 {
        match (self, state) {
            (Self::FixedWindow(k), State::Window(state)) => k.fresh_at_us(*state),
            (Self::SlidingWindow(k), State::Buckets(state)) => k.fresh_at_us(*state),
            (Self::SlidingLog(k), State::Log(log)) => k.fresh_at_us(log),
            (Self::Gcra(_), State::Tat(tat)) => tat.fresh_at_us(),
            (Self::IntervalBucket(k), State::Tokens(state)) => k.fresh_at_us(*state),
            _ => 0,
        }
    }

    /// The same limit for one of `instances` that count apart: limit, burst and refill divided, rounded up, so that none
    /// becomes 0. Together they may admit up to a unit more for each than the whole.
    #[must_use]
    pub fn share_of(&self, instances: NonZeroU32) -> Self {
        let part = |whole: u64| whole.div_ceil(u64::from(instances.get()));
        match *self {
            Self::FixedWindow(k) => Self::FixedWindow(FixedWindow { limit: part(k.limit), ..k }),
            Self::SlidingWindow(k) => Self::SlidingWindow(SlidingWindow { limit: part(k.limit), ..k }),
            Self::SlidingLog(k) => Self::SlidingLog(SlidingLog { limit: part(k.limit), ..k }),
            Self::Gcra(k) => Self::Gcra(Gcra::new(part(k.limit), k.period_us, part(k.burst), k.pacing)),
            Self::IntervalBucket(k) => Self::IntervalBucket(IntervalBucket {
                capacity: part(k.capacity),
                refill: part(k.refill),
                ..k
            }),
            Self::Blocked(k) => Self::Blocked(k),
        }
    }

    /// The largest cost that can ever fit.
    #[must_use]
    pub fn max_cost(&self) -> u64 {
        match self {
            Self::FixedWindow(k) => k.limit,
            Self::SlidingWindow(k) => k.limit,
            Self::SlidingLog(k) => k.limit,
            Self::Gcra(k) => k.burst,
            Self::IntervalBucket(k) => k.capacity,
            Self::Blocked(_) => 0,
        }
    }
}

// A state of another kernel counts as none: the fingerprint in the key keeps them apart.
fn window(state: Option<&State>) -> Option<WindowState> {
    if let Some(State::Window(state)) = state { Some(*state) } else { None }
}

fn buckets(state: Option<&State>) -> Option<BucketState> {
    if let Some(State::Buckets(state)) = state { Some(*state) } else { None }
}

fn log(state: Option<&State>) -> Option<&Log> {
    if let Some(State::Log(log)) = state { Some(log) } else { None }
}

fn tat(state: Option<&State>) -> Tat {
    if let Some(State::Tat(tat)) = state { *tat } else { Tat::default() }
}

fn tokens(state: Option<&State>) -> Option<TokenState> {
    if let Some(State::Tokens(state)) = state { Some(*state) } else { None }
}

impl Reading for Blocked {
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
}

/// The fingerprint: kernel and parameters, so that a counter is never read with another limit's numbers.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FixedWindow(k) => write!(f, "fw:{}/{}", k.limit, k.window_us),
            Self::SlidingWindow(k) => write!(f, "sw:{}/{}", k.limit, k.window_us),
            Self::SlidingLog(k) => write!(f, "sl:{}/{}", k.limit, k.window_us),
            Self::Gcra(k) => write!(f, "gc:{}/{}/{}", k.limit, k.period_us, k.burst),
            Self::IntervalBucket(k) => write!(f, "ib:{}/{}/{}", k.refill, k.interval_us, k.capacity),
            Self::Blocked(_) => f.write_str("no"),
        }
    }
}

/// The most a postpaid counter may owe is one further limit.
fn owing_at_most(limit: u64) -> u64 {
    2 * limit
}

/// How a recorded cost moves a count that starts at 0 and may owe up to one further limit.
fn moved(count: u64, cost: Cost, limit: u64) -> u64 {
    if cost.is_refund() {
        return count.saturating_sub(cost.refunded());
    }
    // A count that stands above the cap already (it cannot, but must not fall by being charged) stays.
    (count + cost.units().unsigned_abs()).min(owing_at_most(limit)).max(count)
}
