//! Layer: tells an observer how long the store below took and how it failed.

use std::time::{Duration, Instant};

use crate::clock::monotonic;
use crate::engine::{Charges, Outcomes, Store, StoreError};

/// Is told of every decision. Telemetry implements it; stores do not know telemetry.
pub trait Observer: Send + Sync {
    /// A decision took so long and ended so.
    fn decided(&self, took: Duration, result: Result<(), &StoreError>);
    /// Whoever asked has gone after so long, before there was an answer.
    fn abandoned(&self, after: Duration);
}

/// Tells both.
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

/// Nobody has waited for the answer, unless that is taken back.
struct Abandoned<'o, O: Observer> {
    observer: &'o O,
    started: Instant,
    is_answered: bool,
}

impl<O: Observer> Drop for Abandoned<'_, O> {
    fn drop(&mut self) {
        if !self.is_answered {
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
        let mut call = Abandoned { observer: &self.observer, started: monotonic(), is_answered: false };
        let result = self.below.decide(charges).await;
        call.is_answered = true;
        self.observer.decided(call.started.elapsed(), result.as_ref().map(|_| ()));
        result
    }
}
