//! Layer: tells an observer how long each decision of the store below took and how it ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::{Charges, Outcomes, Store, StoreError};

use crate::clock::monotonic;

/// Receives the end of every decision. Telemetry implements it: stores do not depend on telemetry.
pub trait Observer: Send + Sync {
    /// A decision finished.
    fn decided(&self, took: Duration, result: Result<(), &StoreError>);
    /// The caller dropped the request before an answer.
    fn abandoned(&self, after: Duration);
}

impl<O: Observer> Observer for Arc<O> {
    fn decided(&self, took: Duration, result: Result<(), &StoreError>) {
        (**self).decided(took, result);
    }

    fn abandoned(&self, after: Duration) {
        (**self).abandoned(after);
    }
}

/// Reports each event to both observers.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn decided(&self, took: Duration, result: Result<(), &StoreError>) {
        self.0.decided(took, result);
        self.1.decided(took, result);
    }

    fn abandoned(&self, after: Duration) {
        self.0.abandoned(after);
        self.1.abandoned(after);
    }
}

/// Reports the call as abandoned when dropped before it is finished.
struct CallGuard<'o, O: Observer> {
    observer: &'o O,
    started: Instant,
    is_finished: bool,
}

impl<O: Observer> CallGuard<'_, O> {
    fn finish(mut self, result: Result<(), &StoreError>) {
        self.is_finished = true;
        self.observer.decided(self.started.elapsed(), result);
    }
}

impl<O: Observer> Drop for CallGuard<'_, O> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.observer.abandoned(self.started.elapsed());
        }
    }
}

/// Puts an observer over a store.
#[derive(Debug)]
pub struct Observed<S, O> {
    below: S,
    observer: O,
}

impl<S, O> Observed<S, O> {
    /// Puts the layer over `below`.
    #[must_use]
    pub fn new(below: S, observer: O) -> Self {
        Self { below, observer }
    }
}

impl<S: Store, O: Observer> Store for Observed<S, O> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let guard = CallGuard { observer: &self.observer, started: monotonic(), is_finished: false };
        let result = self.below.decide(charges).await;
        guard.finish(result.as_ref().map(|_| ()));
        result
    }
}
