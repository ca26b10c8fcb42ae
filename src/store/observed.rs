//! Layer: tells an observer how long the store below took and how it failed.

use std::time::Duration;

use crate::clock::monotonic;
use crate::engine::{Charges, Outcomes, Store, StoreError};

/// Is told of every decision. Telemetry implements it; stores do not know telemetry.
pub trait Observer: Send + Sync {
    /// A decision took so long and ended so.
    fn decided(&self, took: Duration, result: Result<(), &StoreError>);
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
        let started = monotonic();
        let result = self.below.decide(charges).await;
        self.observer.decided(started.elapsed(), result.as_ref().map(|_| ()));
        result
    }
}
