//! The breaker in front of a server, as calls see it. Knows nothing of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::monotonic;
use crate::engine::StoreError;
use crate::store::breaker::{Breaker, BreakerOptions, BreakerState};
use crate::store::redis::observer::{BreakerTransition, RedisObserver};

/// Lets calls through, or says why not.
pub(super) struct BreakerGate {
    /// `None` where it is switched off.
    pub(super) breaker: Option<Mutex<Breaker>>,
    /// Whether calls go through: what every call looks at.
    is_shut: AtomicBool,
    /// Nobody asks any more; what still comes back changes nothing.
    is_retired: AtomicBool,
    pub(super) opened: Notify,
    observer: Arc<dyn RedisObserver>,
}

impl BreakerGate {
    pub(super) fn new(options: Option<BreakerOptions>, observer: Arc<dyn RedisObserver>) -> Self {
        let breaker = options.map(|options| Mutex::new(Breaker::new(options, fastrand::Rng::new())));
        Self {
            breaker,
            is_shut: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            opened: Notify::new(),
            observer,
        }
    }

    /// Whether a call may be made.
    pub(super) fn admit(&self) -> Result<(), StoreError> {
        if !self.is_shut.load(Ordering::Relaxed) {
            return Ok(());
        }
        let cause = self.breaker.as_ref().and_then(|breaker| breaker.lock().cause().cloned());
        cause.map_or(Ok(()), |cause| Err(StoreError::Open(cause)))
    }

    /// How a call ended. Why nobody is to ask any more, when that was one failure too many.
    pub(super) fn record(&self, result: Result<(), &StoreError>) -> Result<(), StoreError> {
        let Some(breaker) = self.breaker.as_ref().filter(|_| !self.is_retired.load(Ordering::Relaxed)) else {
            return Ok(());
        };
        match result {
            Ok(()) => breaker.lock().succeeded(monotonic()),
            Err(cause) => {
                if breaker.lock().failed(monotonic(), cause) {
                    self.transition(BreakerTransition {
                        from: BreakerState::Closed,
                        to: BreakerState::Open,
                        cause: Some(cause),
                    });
                    self.opened.notify_one();
                    return self.admit();
                }
            }
        }
        Ok(())
    }

    pub(super) fn state(&self) -> BreakerState {
        self.breaker.as_ref().map_or(BreakerState::Closed, |breaker| breaker.lock().state())
    }

    /// The server is not asked any more, whatever state it is in.
    pub(super) fn retire(&self) {
        let from = self.state();
        self.is_retired.store(true, Ordering::Relaxed);
        if from != BreakerState::Closed {
            self.transition(BreakerTransition { from, to: BreakerState::Closed, cause: None });
        }
    }

    pub(super) fn transition(&self, turn: BreakerTransition<'_>) {
        self.is_shut.store(turn.to != BreakerState::Closed, Ordering::Relaxed);
        self.observer.breaker(turn);
    }
}
