//! Events of a store for metrics and logs, and [`Observed`], the layer that reports how long each decision took and how
//! it ended.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Charges, Outcomes, Store, StoreError};

use crate::breaker::BreakerState;
use base::clock::monotonic;

/// Receives a store's events; the default methods ignore them. Called on the decision path, so it must be quick.
pub trait Observer: Debug + Send + Sync + 'static {
    fn decided(&self, _took: Duration, _result: Result<(), &StoreError>) {}
    /// The caller dropped the request before the answer.
    fn abandoned(&self, _after: Duration) {}
    /// A batch was sent.
    fn batch(&self, _requests: usize) {}
    /// Requests waiting in all nodes' queues, after some left one of them.
    fn queue_depth(&self, _requests: usize) {}
    /// The undo of a recorded charge failed, so the charge can stay until the counter expires. Until then its limit
    /// denies early.
    fn lost_undo(&self) {}
    fn breaker(&self, _transition: BreakerTransition<'_>) {}
}

#[derive(Clone, Copy, Debug)]
pub struct BreakerTransition<'e> {
    /// Server name, as in [`RedisStore::nodes`](crate::redis::RedisStore::nodes).
    pub node: &'e str,
    pub from: BreakerState,
    pub to: BreakerState,
    /// The failure that opened the breaker or keeps it open.
    pub cause: Option<&'e StoreError>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NoopObserver;

impl Observer for NoopObserver {}

/// Reports the call as abandoned if dropped before it is finished.
struct CallGuard<'o> {
    observer: &'o dyn Observer,
    started: Instant,
    is_finished: bool,
}

impl CallGuard<'_> {
    fn finish(mut self, result: Result<(), &StoreError>) {
        self.is_finished = true;
        self.observer.decided(self.started.elapsed(), result);
    }
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.observer.abandoned(self.started.elapsed());
        }
    }
}

/// A store whose decisions are reported to an observer.
#[derive(Debug)]
pub struct Observed<S> {
    below: S,
    observer: Arc<dyn Observer>,
}

impl<S> Observed<S> {
    pub fn new(below: S, observer: Arc<dyn Observer>) -> Self {
        Self { below, observer }
    }
}

impl<S: Store> Store for Observed<S> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let guard = CallGuard { observer: &*self.observer, started: monotonic(), is_finished: false };
        let result = self.below.decide(charges).await;
        guard.finish(result.as_ref().map(|_| ()));
        result
    }
}
