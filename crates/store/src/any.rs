//! The store of a worker, and the store of the operators, of the kind that the settings choose.

use std::error::Error;
use std::sync::Arc;

use engine::{Charges, Outcomes, Reset, Store, StoreError};
use futures_util::future::BoxFuture;

use super::deny_cache::{DenyCache, DenyCached};
use super::fallback::Fallback;
use super::memory::MemoryStore;
use super::observed::{Observed, Observer};
use super::remote::RemoteStore;
use crate::clock::{Clock, MonotonicClock, SystemClock};

/// A remote store below its layers. The deny cache is above the observer, so that only calls to the store are measured.
pub type Layered<R, O> = Fallback<DenyCached<Observed<R, O>, MonotonicClock>, SystemClock>;

/// The store with which one worker decides.
#[derive(Debug)]
pub enum AnyStore<R, O> {
    /// Shared by all workers. Not measured: reading the clock would take longer than the decision.
    Memory(Arc<MemoryStore<SystemClock>>),
    /// The worker's own.
    Remote {
        /// Decides.
        layered: Layered<R, O>,
        /// The same store without its layers.
        remote: R,
    },
}

impl<R: RemoteStore, O> AnyStore<R, O> {
    /// The remote store without its layers.
    pub fn remote(&self) -> Option<&R> {
        match self {
            Self::Memory(_) => None,
            Self::Remote { remote, .. } => Some(remote),
        }
    }

    /// Resolves with the reason when a task of the remote store dies; otherwise pending.
    pub fn died(&self) -> BoxFuture<'static, Box<dyn Error + Send + Sync>> {
        match self.remote() {
            Some(remote) => Box::pin(remote.died()),
            None => Box::pin(std::future::pending()),
        }
    }

    /// Closes the remote store, if this is one.
    pub fn close(&self) -> BoxFuture<'static, ()> {
        let Some(closed) = self.remote().map(RemoteStore::close) else {
            return Box::pin(async {});
        };
        Box::pin(async move {
            if let Err(error) = closed.await {
                tracing::error!(%error, "a task of the store had died");
            }
        })
    }
}

impl<R: Store, O: Observer> Store for AnyStore<R, O> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        match self {
            Self::Memory(store) => store.decide(charges).await,
            Self::Remote { layered, .. } => layered.decide(charges).await,
        }
    }
}

/// The counters themselves, without the layers that answer in their place. For operators.
#[derive(Debug)]
pub struct AuthoritativeStore<R> {
    /// `None` where the counters are in `memory`.
    pub remote: Option<R>,
    /// All counters; beside a remote store, only the counters of the failure policy `local`.
    pub memory: Arc<MemoryStore<SystemClock>>,
    /// Denials of a reset counter are removed from here. With the clock of the layers over this cache.
    pub denials: Option<(Arc<DenyCache>, MonotonicClock)>,
}

impl<R: Store> Store for AuthoritativeStore<R> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        match &self.remote {
            Some(remote) if !charges.need_no_store() => remote.decide(charges).await,
            Some(_) | None => self.memory.decide(charges).await,
        }
    }
}

impl<R> AuthoritativeStore<R> {
    fn forget_denials(&self, charges: &Charges) {
        if let Some((denials, clock)) = &self.denials {
            let now_us = clock.now_us();
            charges.keys().for_each(|key| denials.forget(key, now_us));
        }
    }
}

impl<R: RemoteStore> Reset for AuthoritativeStore<R> {
    async fn reset(&self, charges: &Charges) -> Result<Vec<bool>, StoreError> {
        let had_units = self.memory.reset(charges).await?;
        let Some(remote) = &self.remote else {
            return Ok(had_units);
        };
        self.forget_denials(charges);
        let had_units = remote.reset(charges).await;
        self.forget_denials(charges);
        had_units
    }
}
