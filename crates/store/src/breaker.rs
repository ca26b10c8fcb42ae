//! Circuit breaker: stops calls to a failing server, and decides when to probe it.
//!
//! A pure state machine; time is an argument. Each worker has one breaker per server (in a cluster, per node), so calls
//! to a dead server fail within microseconds and do not slow down the others. Requests are never used as probes: the
//! owner sends its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::StoreError;
use strum::IntoStaticStr;

const BUCKETS: usize = 10;

/// With fewer results in the window, the share of failures means little.
const MIN_RESULTS: u32 = 20;

/// Of failed calls that were in flight together, this many count as consecutive failures. A stall fails one call on
/// every connection, however many there are.
const COUNTED_TOGETHER: usize = 2;

/// The first pause is this fraction of the longest: most outages are short server restarts.
const FIRST_PAUSE_DIVISOR: u32 = 4;

/// When a breaker opens, and how often it is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerOptions {
    /// Consecutive failures that open the breaker, at least 1. Of calls that were in flight together, only two failures
    /// count.
    pub failures: u32,
    /// Percentage of failures within `window` that opens the breaker, 1 to 100. Needs at least 20 results.
    pub error_percent: u32,
    /// At least 10 us.
    pub window: Duration,
    /// Longest pause before a probe (the setting `pause`). The first pause is a quarter of it, and each further one is
    /// twice as long. Up to half of a pause is subtracted at random.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum BreakerState {
    /// Calls are made.
    #[default]
    Closed,
    /// No calls, until the next probe is due.
    Open,
    /// No calls, a probe is in flight.
    HalfOpen,
}

impl BreakerState {
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::HalfOpen];
}

#[derive(Debug)]
pub struct Breaker {
    options: BreakerOptions,
    /// `None` while closed.
    opened: Option<Opened>,
    consecutive_failures: u32,
    /// When the last counted failures ended, oldest first.
    counted: [Option<Instant>; COUNTED_TOGETHER],
    window: Window,
    random: fastrand::Rng,
}

#[derive(Debug)]
struct Opened {
    /// The failure that opened the breaker or keeps it open.
    cause: Arc<StoreError>,
    /// Pauses before the current one.
    pauses: u32,
    /// `None` while a probe is in flight.
    probe_at: Option<Instant>,
}

impl Breaker {
    /// Returns a closed breaker. `random` varies the pauses, so that processes do not probe in step.
    pub fn new(options: BreakerOptions, random: fastrand::Rng) -> Self {
        let window = Window::new(options.window);
        let counted = [None; COUNTED_TOGETHER];
        Self { options, opened: None, consecutive_failures: 0, counted, window, random }
    }

    pub fn state(&self) -> BreakerState {
        match self.opened {
            None => BreakerState::Closed,
            Some(Opened { probe_at: Some(_), .. }) => BreakerState::Open,
            Some(Opened { probe_at: None, .. }) => BreakerState::HalfOpen,
        }
    }

    /// The failure that opened the breaker or keeps it open; `None` while closed.
    pub fn cause(&self) -> Option<&Arc<StoreError>> {
        self.opened.as_ref().map(|opened| &opened.cause)
    }

    /// When the next probe is due; `None` unless the breaker is open.
    pub fn probe_at(&self) -> Option<Instant> {
        self.opened.as_ref()?.probe_at
    }

    /// Records a successful call. Ignored unless the breaker is closed: the call was sent before it opened.
    pub fn record_success(&mut self, now: Instant) {
        if self.opened.is_none() {
            self.consecutive_failures = 0;
            self.window.add(now, 1, 0);
        }
    }

    /// Records a failed call that was sent at `sent`. Returns `true` if this opens the breaker.
    pub fn record_failure(&mut self, sent: Instant, now: Instant, cause: &StoreError) -> bool {
        if self.opened.is_some() {
            return false;
        }
        if self.counted[0].is_none_or(|ended| sent >= ended) {
            self.consecutive_failures = self.consecutive_failures.saturating_add(1);
            self.counted.rotate_left(1);
            self.counted[COUNTED_TOGETHER - 1] = Some(now);
        }
        self.window.add(now, 0, 1);
        let opens = self.consecutive_failures >= self.options.failures
            || self.window.has_error_share(self.options.error_percent);
        if opens {
            self.open(now, Arc::new(cause.clone()), 0);
        }
        opens
    }

    pub fn start_probe(&mut self) {
        if let Some(opened) = &mut self.opened {
            opened.probe_at = None;
        }
    }

    pub fn record_probe(&mut self, now: Instant, result: Result<(), StoreError>) {
        let Some(Opened { pauses, probe_at: None, .. }) = self.opened else { return };
        match result {
            Ok(()) => {
                self.opened = None;
                self.consecutive_failures = 0;
                self.window = Window::new(self.options.window);
            }
            Err(cause) => self.open(now, Arc::new(cause), pauses.saturating_add(1)),
        }
    }

    fn open(&mut self, now: Instant, cause: Arc<StoreError>, pauses: u32) {
        let probe_at = Some(now + self.pause(pauses));
        self.opened = Some(Opened { cause, pauses, probe_at });
    }

    /// Returns the next pause after `pauses` pauses: it doubles from a quarter of the longest. Up to half of it is
    /// subtracted at random.
    fn pause(&mut self, pauses: u32) -> Duration {
        let doubled = (self.options.pause / FIRST_PAUSE_DIVISOR).saturating_mul(1 << pauses.min(8));
        let longest = doubled.min(self.options.pause);
        let half_us = u64::try_from(longest.as_micros() / 2).unwrap_or(u64::MAX);
        longest - Duration::from_micros(self.random.u64(0..=half_us))
    }
}

/// The results of the last ten intervals, in a ring of buckets.
#[derive(Debug)]
struct Window {
    interval: Duration,
    start: Option<Instant>,
    /// The newest interval, counted from `start`.
    newest: u128,
    buckets: [ResultCounts; BUCKETS],
}

#[derive(Clone, Copy, Debug, Default)]
struct ResultCounts {
    succeeded: u32,
    failed: u32,
}

impl Window {
    fn new(length: Duration) -> Self {
        let interval = (length / BUCKETS as u32).max(Duration::from_micros(1));
        Self { interval, start: None, newest: 0, buckets: [ResultCounts::default(); BUCKETS] }
    }

    fn add(&mut self, now: Instant, succeeded: u32, failed: u32) {
        let start = *self.start.get_or_insert(now);
        let number = now.saturating_duration_since(start).as_micros() / self.interval.as_micros();
        // Clears the buckets of intervals that began after the last result.
        let begun = number.saturating_sub(self.newest).min(BUCKETS as u128);
        for back in 0..begun {
            self.buckets[bucket_index(number - back)] = ResultCounts::default();
        }
        self.newest = self.newest.max(number);
        let bucket = &mut self.buckets[bucket_index(self.newest)];
        bucket.succeeded = bucket.succeeded.saturating_add(succeeded);
        bucket.failed = bucket.failed.saturating_add(failed);
    }

    /// `true` if the window has enough results, and at least `percent` of them are failures.
    fn has_error_share(&self, percent: u32) -> bool {
        let sum =
            |count: fn(&ResultCounts) -> u32| self.buckets.iter().map(|b| u64::from(count(b))).sum::<u64>();
        let (succeeded, failed) = (sum(|bucket| bucket.succeeded), sum(|bucket| bucket.failed));
        let all = succeeded + failed;
        all >= u64::from(MIN_RESULTS) && failed * 100 >= all * u64::from(percent)
    }
}

fn bucket_index(interval: u128) -> usize {
    // Exact: the remainder is below 10.
    (interval % BUCKETS as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::monotonic;

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
                self.breaker.record_failure(self.now, self.now, &StoreError::Timeout);
            }
            self.breaker.state()
        }

        fn succeeds(&mut self, times: u32) {
            for _ in 0..times {
                self.breaker.record_success(self.now);
            }
        }

        /// Advances the time until a probe is due, and returns the time passed.
        fn probes(&mut self, result: Result<(), StoreError>) -> Duration {
            let waited = self.breaker.probe_at().expect("the breaker is open") - self.now;
            self.now += waited;
            self.breaker.start_probe();
            assert_eq!(self.breaker.state(), BreakerState::HalfOpen);
            assert_eq!(self.breaker.probe_at(), None, "one probe at a time");
            self.breaker.record_probe(self.now, result);
            waited
        }
    }

    #[test]
    fn consecutive_failures_open_the_breaker_and_a_success_resets_their_count() {
        let mut case = case();
        assert_eq!(case.fails(4), BreakerState::Closed);
        case.succeeds(1);
        assert_eq!(case.fails(4), BreakerState::Closed);
        assert_eq!(case.fails(1), BreakerState::Open);
        assert_eq!(case.breaker.cause().map(Arc::as_ref), Some(&StoreError::Timeout));
    }

    #[test]
    fn of_failed_calls_that_were_in_flight_together_two_count() {
        let mut case = case();
        for count in [2, 4] {
            let sent = case.now;
            case.now += 15 * MS;
            for _ in 0..8 {
                case.breaker.record_failure(sent, case.now, &StoreError::Timeout);
                case.now += MS;
            }
            assert_eq!(
                (case.breaker.consecutive_failures, case.breaker.state()),
                (count, BreakerState::Closed)
            );
        }
        assert_eq!(case.fails(1), BreakerState::Open);
    }

    #[test]
    fn a_percentage_of_failures_opens_the_breaker_once_there_are_enough_results() {
        let mut case = case();
        for _ in 0..9 {
            case.succeeds(1);
            assert_eq!(case.fails(1), BreakerState::Closed, "half, but of fewer than 20");
        }
        case.succeeds(1);
        assert_eq!(case.fails(1), BreakerState::Open, "10 of 20");
    }

    #[test]
    fn failures_before_the_window_do_not_count() {
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
    fn pauses_between_probes_double_up_to_a_limit_and_vary() {
        let mut case = case();
        case.fails(5);
        for longest in [25, 50, 100, 100, 100, 100] {
            let waited = case.probes(Err(StoreError::Timeout));
            assert!(waited >= longest * MS / 2 && waited <= longest * MS, "{waited:?} of {longest} ms");
            assert_eq!(case.breaker.state(), BreakerState::Open);
        }
        case.probes(Ok(()));
        assert_eq!(case.breaker.state(), BreakerState::Closed);
        assert_eq!(case.fails(4), BreakerState::Closed, "closing clears the counts");
        case.fails(1);
        assert!(case.probes(Ok(())) <= 25 * MS, "and the first pause is short again");
    }

    #[test]
    fn results_of_calls_from_before_the_breaker_opened_are_ignored() {
        let mut case = case();
        case.fails(5);
        let due = case.breaker.probe_at();
        case.succeeds(3);
        assert_eq!(case.fails(50), BreakerState::Open);
        assert_eq!(case.breaker.probe_at(), due);
        case.breaker.start_probe();
        case.succeeds(3);
        assert_eq!(case.fails(5), BreakerState::HalfOpen);
    }

    #[test]
    fn probes_of_many_processes_are_spread() {
        let due = |seed| {
            let mut breaker = Breaker::new(BreakerOptions::default(), fastrand::Rng::with_seed(seed));
            let now = monotonic();
            while !breaker.record_failure(now, now, &StoreError::Timeout) {}
            breaker.probe_at().expect("the breaker is open") - now
        };
        let mut all: Vec<Duration> = (0..100).map(due).collect();
        all.sort_unstable();
        all.dedup();
        assert!(all.len() > 90, "{} different pauses", all.len());
    }
}
