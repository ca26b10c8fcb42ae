//! Says in the log when Redis stops deciding and when it decides again, with the reason: one line per change, whichever
//! worker sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, SystemClock};
use crate::engine::StoreError;
use crate::store::breaker::BreakerState;
use crate::store::observed::Observer;
use crate::store::redis;
use crate::telemetry::metrics::{BatchMeter, StoreMeter};

/// An outage is over when nothing failed for so long: a store that answers every other request, because one of its nodes
/// is away, would fill the log with changes.
const QUIET_US: u64 = 1_000_000;

/// Too many requests is a state that may last.
const BETWEEN_OVERLOADS_US: u64 = 10_000_000;

/// What all workers of a process know of Redis.
#[derive(Debug, Default)]
pub(super) struct Availability {
    is_away: AtomicBool,
    last_failure_us: AtomicU64,
    last_overload_us: AtomicU64,
    shut_breakers: AtomicUsize,
    last_outage: Mutex<Option<Outage>>,
}

/// The last time that Redis stopped deciding.
#[derive(Clone, Debug)]
pub(super) struct Outage {
    /// When, microseconds since the epoch.
    pub(super) at_us: u64,
    /// Why, as the first worker saw it.
    pub(super) error: String,
    /// Whether it decides again.
    pub(super) is_over: bool,
}

/// Measures one worker's store, and watches for changes.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) meter: StoreMeter,
    pub(super) availability: Arc<Availability>,
}

impl Observer for Watched {
    fn decided(&self, took: Duration, result: Result<(), &StoreError>) {
        self.meter.decided(took, result);
        self.availability.note(result);
    }

    fn abandoned(&self, after: Duration) {
        // Whether Redis would have answered is not known.
        self.meter.abandoned(after);
    }
}

/// Measures one worker's calls, and watches its breakers.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) meter: BatchMeter,
    pub(super) availability: Arc<Availability>,
}

impl redis::RedisObserver for Calls {
    fn batch(&self, requests: usize) {
        self.meter.batch(requests);
    }

    fn queue_depth(&self, requests: usize) {
        self.meter.queue_depth(requests);
    }

    fn lost_undo(&self) {
        self.meter.lost_undo();
    }

    fn breaker(&self, turn: redis::BreakerTransition<'_>) {
        self.meter.breaker(turn);
        self.availability.turned(turn);
    }
}

impl Availability {
    /// The outage that is, or the last one that was.
    pub(super) fn last_outage(&self) -> Option<Outage> {
        self.last_outage.lock().clone()
    }

    fn remember(&self, result: Result<(), &StoreError>) {
        let mut last = self.last_outage.lock();
        match (result, &mut *last) {
            (Err(error), _) => {
                let error = error.root().to_string();
                *last = Some(Outage { at_us: SystemClock.now_us(), error, is_over: false });
            }
            (Ok(()), Some(outage)) => outage.is_over = true,
            (Ok(()), None) => {}
        }
    }

    fn note(&self, result: Result<(), &StoreError>) {
        let is_away = self.is_away.load(Ordering::Relaxed);
        match result {
            // Nearly always, and a look is cheaper than a write that all workers would share.
            Ok(()) if !is_away => {}
            Ok(()) => self.note_success(),
            // It decides, as much as it can.
            Err(StoreError::Overloaded) => self.note_overload(),
            Err(error) => self.note_failure(error),
        }
    }

    fn note_success(&self) {
        let since_us = SystemClock.now_us().abs_diff(self.last_failure_us.load(Ordering::Relaxed));
        let is_over = since_us >= QUIET_US && self.shut_breakers.load(Ordering::Relaxed) == 0;
        if is_over && self.is_away.swap(false, Ordering::Relaxed) {
            self.remember(Ok(()));
            tracing::info!("Redis answers again");
        }
    }

    fn note_failure(&self, error: &StoreError) {
        self.last_failure_us.store(SystemClock.now_us(), Ordering::Relaxed);
        if !self.is_away.swap(true, Ordering::Relaxed) {
            self.remember(Err(error));
            let (error, kind) = (error.root(), error.root().kind());
            tracing::warn!(%error, kind, "Redis does not answer: failure policies are in force");
        }
    }

    fn note_overload(&self) {
        let now_us = SystemClock.now_us();
        let last_us = self.last_overload_us.load(Ordering::Relaxed);
        let is_due = now_us.abs_diff(last_us) >= BETWEEN_OVERLOADS_US;
        let exchange =
            || self.last_overload_us.compare_exchange(last_us, now_us, Ordering::Relaxed, Ordering::Relaxed);
        if is_due && exchange().is_ok() {
            tracing::warn!("more requests than Redis decides in time: failure policies answer the surplus");
        }
    }

    /// The first breaker that opens and the last that closes are worth a line; the others see the same outage.
    fn turned(&self, turn: redis::BreakerTransition<'_>) {
        let cause = turn.cause.map(tracing::field::display);
        match (turn.from, turn.to) {
            (BreakerState::Closed, _) if self.shut_breakers.fetch_add(1, Ordering::Relaxed) == 0 => {
                tracing::warn!(error = cause, "breaker open: Redis is only probed");
            }
            (_, BreakerState::Closed) if self.shut_breakers.fetch_sub(1, Ordering::Relaxed) == 1 => {
                tracing::info!("breaker closed: Redis is asked again");
            }
            (from, to) => {
                tracing::debug!(from = from.name(), to = to.name(), error = cause, "breaker");
            }
        }
    }
}
