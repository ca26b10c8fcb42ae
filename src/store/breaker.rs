//! The breaker: when to stop asking a server that does not decide, and when to ask again.
//!
//! A pure state machine of counts; time is an argument. It knows nothing of what is asked or how. One stands before
//! each server (a node of a cluster has its own), so that a dead one costs callers microseconds and the others nothing.
//! Callers are never its probe: whoever owns it asks the server on its own account.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::StoreError;

/// The window moves in so many steps.
const SLOTS: usize = 10;

/// Fewer results than that in a window are no rate.
const LEAST_RESULTS: u32 = 20;

/// The first pause is a quarter of the longest: most outages that a breaker sees are a server's restart.
const FIRST_PAUSE: u32 = 4;

/// When a breaker opens and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Failures in a row that open it, at least 1.
    pub failures: u32,
    /// The share of failures within `window` that opens it, 1 to 100; asked once there are 20 results.
    pub error_percent: u32,
    /// How far back the share looks, at least 10 us.
    pub window: Duration,
    /// The longest time between two probes. The first comes after a quarter; each is cut by a random part of a half.
    pub pause: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            failures: 5,
            error_percent: 50,
            window: Duration::from_secs(1),
            pause: Duration::from_millis(100),
        }
    }
}

/// Whether calls go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BreakerState {
    /// They do.
    #[default]
    Closed,
    /// They do not; nobody asks.
    Open,
    /// They do not; one probe is on its way.
    HalfOpen,
}

impl BreakerState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];

    /// A short name for logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// The breaker before one server.
#[derive(Debug)]
pub struct Breaker {
    options: BreakerOptions,
    state: State,
    failures_in_a_row: u32,
    window: Window,
    random: fastrand::Rng,
}

#[derive(Debug)]
enum State {
    Closed,
    Open { cause: Arc<StoreError>, pauses: u32, probe_at: Instant },
    HalfOpen { cause: Arc<StoreError>, pauses: u32 },
}

impl Breaker {
    /// A closed one. `random` spreads the probes of many over time.
    #[must_use]
    pub fn new(options: BreakerOptions, random: fastrand::Rng) -> Self {
        let window = Window::new(options.window);
        Self { options, state: State::Closed, failures_in_a_row: 0, window, random }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        match self.state {
            State::Closed => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// The last failure, while calls do not go through.
    #[must_use]
    pub fn cause(&self) -> Option<&Arc<StoreError>> {
        match &self.state {
            State::Closed => None,
            State::Open { cause, .. } | State::HalfOpen { cause, .. } => Some(cause),
        }
    }

    /// When the next probe is due; `None` unless open.
    #[must_use]
    pub fn probe_at(&self) -> Option<Instant> {
        if let State::Open { probe_at, .. } = self.state { Some(probe_at) } else { None }
    }

    /// A call was answered. Means nothing while calls do not go through: it was sent before that.
    pub fn succeeded(&mut self, now: Instant) {
        if matches!(self.state, State::Closed) {
            self.failures_in_a_row = 0;
            self.window.add(now, 1, 0);
        }
    }

    /// A call failed. True when that opens the breaker.
    pub fn failed(&mut self, now: Instant, cause: &StoreError) -> bool {
        if !matches!(self.state, State::Closed) {
            return false;
        }
        self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
        self.window.add(now, 0, 1);
        let opens = self.failures_in_a_row >= self.options.failures
            || self.window.has_share(self.options.error_percent);
        if opens {
            self.open(now, Arc::new(cause.clone()), 0);
        }
        opens
    }

    /// The one probe is sent.
    pub fn probing(&mut self) {
        if let State::Open { cause, pauses, .. } = &self.state {
            self.state = State::HalfOpen { cause: Arc::clone(cause), pauses: *pauses };
        }
    }

    /// The probe was answered, or not.
    pub fn probed(&mut self, now: Instant, result: Result<(), StoreError>) {
        let State::HalfOpen { pauses, .. } = self.state else { return };
        match result {
            Ok(()) => {
                self.state = State::Closed;
                self.failures_in_a_row = 0;
                self.window = Window::new(self.options.window);
            }
            Err(cause) => self.open(now, Arc::new(cause), pauses.saturating_add(1)),
        }
    }

    fn open(&mut self, now: Instant, cause: Arc<StoreError>, pauses: u32) {
        let probe_at = now + self.pause(pauses);
        self.state = State::Open { cause, pauses, probe_at };
    }

    /// Doubles from a quarter of the longest; half of each is left to chance, so that many do not ask in step.
    fn pause(&mut self, pauses: u32) -> Duration {
        let doubled = (self.options.pause / FIRST_PAUSE).saturating_mul(1 << pauses.min(8));
        let longest = doubled.min(self.options.pause);
        let half_us = u64::try_from(longest.as_micros() / 2).unwrap_or(u64::MAX);
        longest - Duration::from_micros(self.random.u64(0..=half_us))
    }
}

/// Results of the last while, in slots of time that are reused in turn.
#[derive(Debug)]
struct Window {
    slot: Duration,
    start: Option<Instant>,
    newest: u128,
    slots: [Slot; SLOTS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    answered: u32,
    failed: u32,
}

impl Window {
    fn new(length: Duration) -> Self {
        // Ten slots, each a tenth.
        let slot = (length / 10).max(Duration::from_micros(1));
        Self { slot, start: None, newest: 0, slots: [Slot::default(); SLOTS] }
    }

    fn add(&mut self, now: Instant, answered: u32, failed: u32) {
        let start = *self.start.get_or_insert(now);
        let number = now.saturating_duration_since(start).as_micros() / self.slot.as_micros();
        // What lies further back than the window is cleared as its slots are needed again.
        let passed = number.saturating_sub(self.newest).min(SLOTS as u128);
        for back in 0..passed {
            self.slots[place(number - back)] = Slot::default();
        }
        self.newest = self.newest.max(number);
        let slot = &mut self.slots[place(self.newest)];
        slot.answered = slot.answered.saturating_add(answered);
        slot.failed = slot.failed.saturating_add(failed);
    }

    fn has_share(&self, percent: u32) -> bool {
        let sum = |count: fn(&Slot) -> u32| self.slots.iter().map(|slot| u64::from(count(slot))).sum::<u64>();
        let (answered, failed) = (sum(|slot| slot.answered), sum(|slot| slot.failed));
        let all = answered + failed;
        all >= u64::from(LEAST_RESULTS) && failed * 100 >= all * u64::from(percent)
    }
}

fn place(number: u128) -> usize {
    // Below ten.
    (number % SLOTS as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    const MS: Duration = Duration::from_millis(1);

    struct Case {
        breaker: Breaker,
        now: Instant,
    }

    fn case() -> Case {
        Case {
            breaker: Breaker::new(BreakerOptions::default(), fastrand::Rng::with_seed(7)),
            now: monotonic(),
        }
    }

    impl Case {
        fn fails(&mut self, times: u32) -> BreakerState {
            for _ in 0..times {
                self.breaker.failed(self.now, &StoreError::Timeout);
            }
            self.breaker.state()
        }

        fn succeeds(&mut self, times: u32) {
            for _ in 0..times {
                self.breaker.succeeded(self.now);
            }
        }

        /// Waits for the probe's turn; how long that was.
        fn probes(&mut self, result: Result<(), StoreError>) -> Duration {
            let waited = self.breaker.probe_at().expect("it is open") - self.now;
            self.now += waited;
            self.breaker.probing();
            assert_eq!(self.breaker.state(), BreakerState::HalfOpen);
            assert_eq!(self.breaker.probe_at(), None, "one probe at a time");
            self.breaker.probed(self.now, result);
            waited
        }
    }

    #[test]
    fn it_opens_on_failures_in_a_row_and_a_success_begins_the_row_anew() {
        let mut case = case();
        assert_eq!(case.fails(4), BreakerState::Closed);
        case.succeeds(1);
        assert_eq!(case.fails(4), BreakerState::Closed);
        assert_eq!(case.fails(1), BreakerState::Open);
        assert_eq!(case.breaker.cause().map(Arc::as_ref), Some(&StoreError::Timeout));
    }

    #[test]
    fn it_opens_on_a_share_of_failures_once_there_are_enough_results() {
        let mut case = case();
        for _ in 0..9 {
            case.succeeds(1);
            assert_eq!(case.fails(1), BreakerState::Closed, "half of too few");
        }
        case.succeeds(1);
        assert_eq!(case.fails(1), BreakerState::Open, "10 of 20");
    }

    #[test]
    fn failures_that_lie_behind_the_window_do_not_count() {
        let mut case = case();
        for _ in 0..30 {
            case.succeeds(3);
            assert_eq!(case.fails(2), BreakerState::Closed, "40 of 100");
        }
        case.now += 1_001 * MS;
        for _ in 0..9 {
            case.succeeds(1);
            assert_eq!(case.fails(1), BreakerState::Closed, "the window holds fewer than 20");
        }
        case.now += 300 * MS;
        case.succeeds(30);
        case.now += 800 * MS;
        assert_eq!(case.fails(4), BreakerState::Closed, "only the thirty are left: 4 of 34");
    }

    #[test]
    fn probes_come_in_growing_capped_and_jittered_pauses() {
        let mut case = case();
        case.fails(5);
        for longest in [25, 50, 100, 100, 100, 100] {
            let waited = case.probes(Err(StoreError::Timeout));
            assert!(waited >= longest * MS / 2 && waited <= longest * MS, "{waited:?} of {longest} ms");
            assert_eq!(case.breaker.state(), BreakerState::Open);
        }
        case.probes(Ok(()));
        assert_eq!(case.breaker.state(), BreakerState::Closed);
        assert_eq!(case.fails(4), BreakerState::Closed, "it forgets what was");
        case.fails(1);
        assert!(case.probes(Ok(())) <= 25 * MS, "and begins with the short pause again");
    }

    #[test]
    fn what_was_sent_before_it_opened_changes_nothing() {
        let mut case = case();
        case.fails(5);
        let due = case.breaker.probe_at();
        case.succeeds(3);
        assert_eq!(case.fails(50), BreakerState::Open);
        assert_eq!(case.breaker.probe_at(), due);
        case.breaker.probing();
        case.succeeds(3);
        assert_eq!(case.fails(5), BreakerState::HalfOpen);
    }

    #[test]
    fn probes_of_many_are_spread() {
        let due = |seed| {
            let mut breaker = Breaker::new(BreakerOptions::default(), fastrand::Rng::with_seed(seed));
            let now = monotonic();
            while !breaker.failed(now, &StoreError::Timeout) {}
            breaker.probe_at().expect("it is open") - now
        };
        let mut all: Vec<Duration> = (0..100).map(due).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 90, "{} different pauses", all.len());
    }
}
