//! Says in the log when Redis stops answering and when it answers again: one line per change, whichever worker sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::engine::StoreError;
use crate::store::observed::Observer;
use crate::telemetry::metrics::StoreMeter;

/// A store that answers every other request would fill the log with changes.
const BETWEEN_LINES_US: u64 = 1_000_000;

/// What all workers of a process know of Redis.
#[derive(Debug, Default)]
pub(super) struct Availability {
    is_away: AtomicBool,
    last_line_us: AtomicU64,
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
}

impl Availability {
    fn note(&self, result: Result<(), &StoreError>) {
        let is_away = result.is_err();
        // Nearly always nothing has changed, and a look is cheaper than a write that all workers would share.
        if self.is_away.load(Ordering::Relaxed) == is_away || !self.may_speak() {
            return;
        }
        if self.is_away.swap(is_away, Ordering::Relaxed) != is_away {
            match result {
                Ok(()) => tracing::info!("Redis answers again"),
                Err(error) => tracing::warn!(%error, "Redis does not answer: failure policies are in force"),
            }
        }
    }

    fn may_speak(&self) -> bool {
        let now_us = SystemClock.now_us();
        let last_us = self.last_line_us.load(Ordering::Relaxed);
        let is_due = now_us.abs_diff(last_us) >= BETWEEN_LINES_US;
        let store =
            |last: &AtomicU64| last.compare_exchange(last_us, now_us, Ordering::Relaxed, Ordering::Relaxed);
        is_due && store(&self.last_line_us).is_ok()
    }
}
