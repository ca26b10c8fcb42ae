//! The stores of the process: which there are, what lies over them, who shares what.

use std::sync::Arc;

use crate::clock::SystemClock;
use crate::engine::{Charges, Outcomes, Store, StoreError};
use crate::settings;
use crate::store::memory::{MemoryOptions, MemoryStore};
use crate::transport::grpc::BoxError;

/// Makes the stores of all workers.
#[derive(Debug)]
pub(super) struct Stores {
    /// The counters themselves, or what limits with the policy `local` count by while Redis is away.
    pub(super) memory: Arc<MemoryStore<SystemClock>>,
}

/// The store of one worker.
#[derive(Debug)]
pub(super) enum AnyStore {
    /// Shared by all workers.
    Memory(Arc<MemoryStore<SystemClock>>),
}

impl Stores {
    pub(super) fn new(settings: &settings::Store) -> Self {
        let options = MemoryOptions { max_keys: settings.memory.max_keys.get(), ..MemoryOptions::default() };
        Self { memory: Arc::new(MemoryStore::new(options, SystemClock)) }
    }

    /// A store for whoever runs on this runtime.
    pub(super) fn make(&self) -> Result<AnyStore, BoxError> {
        Ok(AnyStore::Memory(Arc::clone(&self.memory)))
    }
}

impl Store for AnyStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        match self {
            Self::Memory(store) => store.decide(charges).await,
        }
    }
}
