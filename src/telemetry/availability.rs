//! Whether the remote store decides, as all workers of the process see it. Logs each change once, with the reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, SystemClock};
use crate::engine::StoreError;
use crate::store::breaker::BreakerState;
use crate::store::observed::Observer;
use crate::store::redis::{BreakerTransition, RedisObserver};

/// An outage ends only after this time without a failure. When one node of a cluster is down, failures and successes
/// alternate, and each change would be a log line.
const QUIET_US: u64 = 1_000_000;

/// Overload can last, so its log line is repeated at this interval at most.
const OVERLOAD_LOG_INTERVAL_US: u64 = 10_000_000;

/// The state of the remote store. Shared by all workers.
#[derive(Debug, Default)]
pub struct Availability {
    is_down: AtomicBool,
    last_failure_us: AtomicU64,
    last_overload_us: AtomicU64,
    open_breakers: AtomicUsize,
    last_outage: Mutex<Option<Outage>>,
}

/// A time during which the store did not decide.
#[derive(Clone, Debug)]
pub struct Outage {
    /// Its start, microseconds since the epoch.
    pub at_us: u64,
    /// The error of its first failed decision.
    pub error: String,
    pub is_over: bool,
}

impl Observer for Arc<Availability> {
    fn decided(&self, _took: Duration, result: Result<(), &StoreError>) {
        self.record_result(result);
    }

    /// The caller cancelled the call before there was a result.
    fn abandoned(&self, _after: Duration) {}
}

impl RedisObserver for Arc<Availability> {
    fn batch(&self, _requests: usize) {}

    fn queue_depth(&self, _requests: usize) {}

    fn lost_undo(&self) {}

    fn breaker(&self, transition: BreakerTransition<'_>) {
        self.record_transition(transition);
    }
}

impl Availability {
    /// The current outage, or the last one.
    pub fn last_outage(&self) -> Option<Outage> {
        self.last_outage.lock().clone()
    }

    /// Whether an outage lasts.
    pub fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Whether only another decision can show that the outage is over: while a breaker is open, its own probes do.
    pub fn needs_probe(&self) -> bool {
        self.is_down.load(Ordering::Relaxed) && self.open_breakers.load(Ordering::Relaxed) == 0
    }

    /// Records that the store made a decision for which no caller asked.
    pub fn record_probe(&self) {
        self.record_result(Ok(()));
    }

    fn record_result(&self, result: Result<(), &StoreError>) {
        let is_down = self.is_down.load(Ordering::Relaxed);
        match result {
            // The usual case only reads: a write would move the cache line between the workers.
            Ok(()) if !is_down => {}
            Ok(()) => self.record_success(),
            // The store decides as much as it can, so this is no outage.
            Err(error) if *error.root() == StoreError::Overloaded => self.record_overload(),
            Err(error) => self.record_failure(error),
        }
    }

    fn record_success(&self) {
        let since_us = SystemClock.now_us().abs_diff(self.last_failure_us.load(Ordering::Relaxed));
        let is_over = since_us >= QUIET_US && self.open_breakers.load(Ordering::Relaxed) == 0;
        if is_over && self.is_down.swap(false, Ordering::Relaxed) {
            if let Some(outage) = &mut *self.last_outage.lock() {
                outage.is_over = true;
            }
            tracing::info!("Redis answers again");
        }
    }

    fn record_failure(&self, error: &StoreError) {
        let now_us = SystemClock.now_us();
        self.last_failure_us.store(now_us, Ordering::Relaxed);
        if !self.is_down.swap(true, Ordering::Relaxed) {
            let error = error.root();
            let outage = Outage { at_us: now_us, error: error.to_string(), is_over: false };
            *self.last_outage.lock() = Some(outage);
            tracing::warn!(%error, kind = error.kind(), "Redis does not answer: failure policies are in force");
        }
    }

    fn record_overload(&self) {
        let now_us = SystemClock.now_us();
        let last_us = self.last_overload_us.load(Ordering::Relaxed);
        let is_due = now_us.abs_diff(last_us) >= OVERLOAD_LOG_INTERVAL_US;
        let exchange =
            || self.last_overload_us.compare_exchange(last_us, now_us, Ordering::Relaxed, Ordering::Relaxed);
        if is_due && exchange().is_ok() {
            tracing::warn!("more requests than Redis decides in time: failure policies answer the surplus");
        }
    }

    /// Only the first breaker that opens and the last that closes are worth a warning: the others see the same outage.
    fn record_transition(&self, transition: BreakerTransition<'_>) {
        let cause = transition.cause.map(tracing::field::display);
        match (transition.from, transition.to) {
            (BreakerState::Closed, _) if self.open_breakers.fetch_add(1, Ordering::Relaxed) == 0 => {
                tracing::warn!(error = cause, "breaker open: Redis is only probed");
            }
            (_, BreakerState::Closed) if self.open_breakers.fetch_sub(1, Ordering::Relaxed) == 1 => {
                tracing::info!("breaker closed: calls to Redis are sent again");
            }
            (from, to) => {
                tracing::debug!(from = from.name(), to = to.name(), error = cause, "breaker");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(availability: &Availability) -> Option<(String, bool)> {
        availability.last_outage().map(|outage| (outage.error, outage.is_over))
    }

    #[test]
    fn an_outage_starts_at_the_first_failure_and_has_its_error() {
        let availability = Availability::default();
        availability.record_result(Ok(()));
        assert_eq!(shown(&availability), None);
        let refused = StoreError::Refused("READONLY".to_owned());
        availability.record_result(Err(&refused));
        availability.record_result(Err(&StoreError::Timeout));
        assert_eq!(shown(&availability), Some((refused.to_string(), false)));
    }

    #[test]
    fn an_outage_does_not_end_within_a_second_of_the_last_failure() {
        let availability = Availability::default();
        availability.record_result(Err(&StoreError::Timeout));
        availability.record_result(Ok(()));
        assert_eq!(shown(&availability).map(|(_, is_over)| is_over), Some(false));
        let earlier_us = SystemClock.now_us() - QUIET_US;
        availability.last_failure_us.store(earlier_us, Ordering::Relaxed);
        availability.record_result(Ok(()));
        assert_eq!(shown(&availability).map(|(_, is_over)| is_over), Some(true));
    }

    #[test]
    fn an_outage_does_not_end_while_a_breaker_is_open() {
        let availability = Availability::default();
        let transition = |from, to| BreakerTransition { from, to, cause: None };
        availability.record_result(Err(&StoreError::Timeout));
        availability.last_failure_us.store(0, Ordering::Relaxed);
        availability.record_transition(transition(BreakerState::Closed, BreakerState::Open));
        availability.record_result(Ok(()));
        assert_eq!(shown(&availability).map(|(_, is_over)| is_over), Some(false));
        availability.record_transition(transition(BreakerState::HalfOpen, BreakerState::Closed));
        availability.record_result(Ok(()));
        assert_eq!(shown(&availability).map(|(_, is_over)| is_over), Some(true));
    }

    #[test]
    fn an_outage_without_an_open_breaker_needs_a_probe_and_ends_with_it() {
        let availability = Availability::default();
        assert!(!availability.needs_probe());
        availability.record_result(Err(&StoreError::Timeout));
        assert!(availability.needs_probe());
        availability.last_failure_us.store(0, Ordering::Relaxed);
        availability.record_probe();
        assert!(!availability.needs_probe());
        assert_eq!(shown(&availability).map(|(_, is_over)| is_over), Some(true));

        let transition = |from, to| BreakerTransition { from, to, cause: None };
        availability.record_result(Err(&StoreError::Timeout));
        availability.record_transition(transition(BreakerState::Closed, BreakerState::Open));
        assert!(!availability.needs_probe(), "the breaker has its own probes");
    }

    #[test]
    fn overload_is_no_outage() {
        let availability = Availability::default();
        availability.record_result(Err(&StoreError::Overloaded));
        assert_eq!(shown(&availability), None);
    }
}
