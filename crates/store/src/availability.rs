//! Tracks which Redis servers are in an outage, as seen by the breakers of all workers. Logs when an outage starts and
//! ends, with the cause and the number of failed calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::readable_duration;
use engine::StoreError;
use parking_lot::Mutex;

use crate::breaker::BreakerState;
use crate::observer::{BreakerTransition, Observer};
use base::clock::{Clock, SystemClock, monotonic};
use base::log_throttle::LogThrottle;

/// An outage ends only after this long without an open breaker. A server that answers only some calls opens and closes
/// the breakers many times a second, and each change would be a log line.
const QUIET: Duration = Duration::from_secs(1);

/// Overload can last, so it is logged at most this often.
const OVERLOAD_LOG_INTERVAL_US: u64 = 10_000_000;

/// Outages of the Redis store, shared by all workers.
#[derive(Debug, Default)]
pub struct Availability {
    /// Calls that failed since startup, except because of overload.
    failed_calls: AtomicU64,
    last_overload_us: AtomicU64,
    /// One failed call's error since the last [`Availability::look`].
    failure: Mutex<Option<StoreError>>,
    outages: Mutex<Outages>,
}

/// A time during which a server did not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Start, microseconds since the epoch.
    pub at_us: u64,
    /// Server name, as in [`RedisStore::nodes`](crate::redis::RedisStore::nodes).
    pub node: String,
    /// The latest error that opened a breaker or kept it open.
    pub error: String,
    pub is_over: bool,
}

#[derive(Debug, Default)]
struct Outages {
    /// By server name.
    current: BTreeMap<String, CurrentOutage>,
    last: Option<Outage>,
    /// `failed_calls` at the last two looks, older first. The calls that open a breaker fail before it opens.
    failed_before: [u64; 2],
    failures_without_outage: LogThrottle,
}

#[derive(Debug)]
struct CurrentOutage {
    outage: Outage,
    began: Instant,
    open_breakers: usize,
    /// When the last breaker closed.
    closed: Option<Instant>,
    /// `failed_calls` before the outage began.
    failed_before: u64,
    other_errors: LogThrottle,
}

/// Records failures and breaker changes, and passes every event on.
#[derive(Debug)]
struct WatchedBy {
    availability: Arc<Availability>,
    meter: Arc<dyn Observer>,
}

impl Observer for WatchedBy {
    fn decided(&self, took: Duration, result: Result<(), &StoreError>) {
        self.meter.decided(took, result);
        if let Err(error) = result {
            self.availability.record_failure(error);
        }
    }

    /// The caller cancelled the call before there was a result, so this is not a failure.
    fn abandoned(&self, after: Duration) {
        self.meter.abandoned(after);
    }

    fn batch(&self, requests: usize) {
        self.meter.batch(requests);
    }

    fn queue_depth(&self, requests: usize) {
        self.meter.queue_depth(requests);
    }

    fn lost_undo(&self) {
        self.meter.lost_undo();
    }

    fn breaker(&self, transition: BreakerTransition<'_>) {
        self.meter.breaker(transition);
        self.availability.record_transition(transition, monotonic());
    }
}

impl Availability {
    /// Returns an observer that records failures and breaker changes here and passes every event on to `meter`.
    pub fn watching(self: &Arc<Self>, meter: impl Observer) -> Arc<dyn Observer> {
        Arc::new(WatchedBy { availability: Arc::clone(self), meter: Arc::new(meter) })
    }

    /// The current outage, or else the last one.
    pub fn last_outage(&self) -> Option<Outage> {
        let outages = self.outages.lock();
        let current =
            outages.current.values().map(|current| &current.outage).max_by_key(|outage| outage.at_us);
        current.or(outages.last.as_ref()).cloned()
    }

    /// Ends the outages of servers that answer again. Call it about once a second. `is_known`: `true` if the store
    /// still has a server of this name.
    pub fn look(&self, is_known: impl Fn(&str) -> bool) {
        self.look_at(monotonic(), is_known);
    }

    fn look_at(&self, now: Instant, is_known: impl Fn(&str) -> bool) {
        let failed = self.failed_calls.load(Ordering::Relaxed);
        let failure = self.failure.lock().take();
        let mut outages = self.outages.lock();
        let Outages { current, last, failed_before, failures_without_outage } = &mut *outages;
        let since_last_look = failed.saturating_sub(failed_before[1]);
        if since_last_look > 0
            && current.is_empty()
            && let Some(calls) = failures_without_outage.add(since_last_look)
        {
            let kind = failure.as_ref().map(StoreError::kind);
            let error = failure.as_ref().map(tracing::field::display);
            tracing::warn!(calls, error, kind, "Redis calls failed; failure policies answered them");
        }
        *failed_before = [failed_before[1], failed];
        let is_over = |outage: &CurrentOutage| {
            outage.closed.is_some_and(|closed| now.saturating_duration_since(closed) >= QUIET)
        };
        let over: Vec<String> =
            current.iter().filter(|(_, outage)| is_over(outage)).map(|(node, _)| node.clone()).collect();
        for ended in over.iter().filter_map(|node| current.remove(node)) {
            ended.log_end(failed, is_known(&ended.outage.node));
            *last = Some(Outage { is_over: true, ..ended.outage });
        }
    }

    fn record_failure(&self, error: &StoreError) {
        // Under overload the store still decides as much as it can: this is not an outage.
        if *error.root() == StoreError::Overloaded {
            self.record_overload();
        } else {
            self.failed_calls.fetch_add(1, Ordering::Relaxed);
            // If another thread holds the lock, its error is enough.
            if let Some(mut failure) = self.failure.try_lock()
                && failure.is_none()
            {
                *failure = Some(error.root().clone());
            }
        }
    }

    fn record_overload(&self) {
        let now_us = SystemClock.now_us();
        let last_us = self.last_overload_us.load(Ordering::Relaxed);
        let is_due = now_us.abs_diff(last_us) >= OVERLOAD_LOG_INTERVAL_US;
        let exchange =
            || self.last_overload_us.compare_exchange(last_us, now_us, Ordering::Relaxed, Ordering::Relaxed);
        if is_due && exchange().is_ok() {
            tracing::warn!("Redis is overloaded; failure policies answer the excess");
        }
    }

    fn record_transition(&self, transition: BreakerTransition<'_>, now: Instant) {
        let BreakerTransition { node, from, to, cause } = transition;
        let shown = cause.map(tracing::field::display);
        tracing::debug!(
            node,
            from = from.into_str(),
            to = to.into_str(),
            error = shown,
            "breaker state changed"
        );
        match (from, to) {
            (BreakerState::Closed, _) => self.record_open(node, cause, now),
            (_, BreakerState::Closed) => self.record_closed(node, now),
            (_, BreakerState::Open) => self.record_still_open(node, cause),
            _ => {}
        }
    }

    fn record_open(&self, node: &str, cause: Option<&StoreError>, now: Instant) {
        let mut outages = self.outages.lock();
        let failed_before = outages.failed_before[0];
        let current = outages.current.entry(node.to_owned()).or_insert_with(|| {
            let error = cause.map_or_else(String::new, |cause| cause.root().to_string());
            log_start(node, cause, &error);
            let outage = Outage { at_us: SystemClock.now_us(), node: node.to_owned(), error, is_over: false };
            let other_errors = LogThrottle::default();
            CurrentOutage { outage, began: now, open_breakers: 0, closed: None, failed_before, other_errors }
        });
        current.open_breakers += 1;
        current.closed = None;
    }

    /// Records a failed probe. The cause of an outage can change while it lasts.
    fn record_still_open(&self, node: &str, cause: Option<&StoreError>) {
        let mut outages = self.outages.lock();
        let (Some(cause), Some(current)) = (cause, outages.current.get_mut(node)) else { return };
        let error = cause.root().to_string();
        if error != current.outage.error {
            if current.other_errors.count().is_some() {
                let kind = cause.root().kind();
                tracing::warn!(
                    node = named(node), %error, kind,
                    "Redis is still unavailable; the error changed"
                );
            }
            current.outage.error = error;
        }
    }

    fn record_closed(&self, node: &str, now: Instant) {
        if let Some(current) = self.outages.lock().current.get_mut(node) {
            current.open_breakers = current.open_breakers.saturating_sub(1);
            current.closed = (current.open_breakers == 0).then_some(now);
        }
    }
}

fn log_start(node: &str, cause: Option<&StoreError>, error: &str) {
    let kind = cause.map(|cause| cause.root().kind());
    tracing::warn!(node = named(node), %error, kind, "Redis is unavailable; failure policies apply");
}

impl CurrentOutage {
    /// `failed`: [`Availability::failed_calls`]. `is_known`: `true` if the store still has the server.
    fn log_end(&self, failed: u64, is_known: bool) {
        let node = named(&self.outage.node);
        let lasted =
            self.closed.map_or(Duration::ZERO, |closed| closed.saturating_duration_since(self.began));
        let lasted = readable_duration(Duration::new(lasted.as_secs(), lasted.subsec_millis() * 1_000_000));
        let calls = failed.saturating_sub(self.failed_before);
        if is_known {
            tracing::info!(node, %lasted, calls, "Redis is available again");
        } else {
            tracing::info!(node, %lasted, calls, "Redis node was replaced; its outage is over");
        }
    }
}

/// The only server of a store has an empty name.
fn named(node: &str) -> Option<&str> {
    (!node.is_empty()).then_some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct Case {
        availability: Availability,
        now: Instant,
    }

    fn case() -> Case {
        Case { availability: Availability::default(), now: monotonic() }
    }

    impl Case {
        fn changes(&self, node: &str, from: BreakerState, to: BreakerState) {
            let cause = (to == BreakerState::Open).then_some(&StoreError::Timeout);
            self.availability.record_transition(BreakerTransition { node, from, to, cause }, self.now);
        }

        fn opens(&self, node: &str) {
            self.changes(node, BreakerState::Closed, BreakerState::Open);
        }

        fn closes(&self, node: &str) {
            self.changes(node, BreakerState::Open, BreakerState::HalfOpen);
            self.changes(node, BreakerState::HalfOpen, BreakerState::Closed);
        }

        fn looks_after(&mut self, time: Duration) -> Option<(String, bool)> {
            self.now += time;
            self.availability.look_at(self.now, |_| true);
            self.availability.last_outage().map(|outage| (outage.node, outage.is_over))
        }
    }

    fn of(node: &str, is_over: bool) -> Option<(String, bool)> {
        Some((node.to_owned(), is_over))
    }

    #[test]
    fn failures_without_an_open_breaker_are_no_outage() {
        let mut case = case();
        for _ in 0..1_000 {
            case.availability.record_failure(&StoreError::Timeout);
            case.availability.record_failure(&StoreError::Overloaded);
        }
        assert_eq!(case.looks_after(SECOND), None);
        assert_eq!(case.availability.failed_calls.load(Ordering::Relaxed), 1_000, "overload is no failure");
    }

    #[test]
    fn an_outage_begins_with_the_first_breaker_and_ends_a_second_after_the_last_is_closed() {
        let mut case = case();
        case.opens("");
        let error = case.availability.last_outage().map(|outage| outage.error);
        assert_eq!(error, Some(StoreError::Timeout.to_string()));
        case.opens("");
        case.closes("");
        assert_eq!(case.looks_after(10 * SECOND), of("", false), "one is open");
        case.closes("");
        assert_eq!(case.looks_after(SECOND / 2), of("", false), "it may open again");
        case.opens("");
        case.closes("");
        assert_eq!(case.looks_after(SECOND / 2), of("", false), "it did");
        assert_eq!(case.looks_after(SECOND / 2), of("", true));
    }

    #[test]
    fn an_outage_has_the_newest_error() {
        let mut case = case();
        case.opens("");
        for cause in [StoreError::Overloaded, StoreError::Timeout, StoreError::Overloaded] {
            let (from, to) = (BreakerState::HalfOpen, BreakerState::Open);
            let transition = BreakerTransition { node: "", from, to, cause: Some(&cause) };
            case.availability.record_transition(transition, case.now);
            assert_eq!(case.availability.last_outage().expect("an outage").error, cause.to_string());
        }
        case.closes("");
        assert_eq!(case.looks_after(SECOND), of("", true), "a failed probe opens no further breaker");
    }

    #[test]
    fn each_server_has_an_outage_of_its_own() {
        let mut case = case();
        case.opens("a:1");
        case.now += SECOND;
        case.opens("b:2");
        case.closes("b:2");
        assert_eq!(case.looks_after(SECOND), of("a:1", false), "it lasts, and the other is over");
        case.closes("a:1");
        assert_eq!(case.looks_after(SECOND), of("a:1", true));
    }

    #[test]
    fn calls_that_failed_just_before_the_breaker_opened_belong_to_the_outage() {
        let mut case = case();
        let fails = |case: &Case, times| {
            (0..times).for_each(|_| case.availability.record_failure(&StoreError::Timeout));
        };
        fails(&case, 7);
        case.looks_after(SECOND);
        case.looks_after(SECOND);
        fails(&case, 3);
        case.looks_after(SECOND / 2);
        fails(&case, 2);
        case.opens("");
        fails(&case, 4);
        let failed_before = case.availability.outages.lock().current[""].failed_before;
        assert_eq!(case.availability.failed_calls.load(Ordering::Relaxed) - failed_before, 9);
    }
}
