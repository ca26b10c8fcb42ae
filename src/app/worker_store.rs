//! The store of a worker, and the operators' store, of the kind that the settings choose.

use std::error::Error;
use std::sync::Arc;

use base::clock::{BootClock, Clock, MonotonicClock, SystemClock};
use engine::{Charge, Charges, KeyPage, Listing, Outcome, Outcomes, Reset, Store, StoreError};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use store::deny_cache::{DenyCache, DenyCached};
use store::fallback::Fallback;
use store::leases::{Leased, Leases};
use store::memory::MemoryStore;
use store::observer::Observed;
use store::redis::RedisStore;
use store::release_later::ReleaseLater;
use tokio_util::sync::CancellationToken;

/// Redis below the layers that answer for it. The deny cache is above the observer, so that only calls to the store are
/// measured. The leases are above the deny cache: units that this process holds come before a denial by the store.
type Answering = ReleaseLater<Leased<DenyCached<Observed<RedisStore>, MonotonicClock>, BootClock>>;

/// The denials that the workers share, and the clock of their ages.
pub(super) type Denials = (Arc<DenyCache>, MonotonicClock);

#[derive(Debug)]
pub(super) enum WorkerStore {
    /// Shared by all workers. Not measured: reading the clock would take longer than the decision.
    Memory(Arc<MemoryStore<SystemClock>>),
    Redis {
        layered: Fallback<Answering, SystemClock>,
        /// The same store without its layers.
        redis: RedisStore,
        /// Ends the worker's tasks, which then return all units that the process holds, and release its slots.
        stop: CancellationToken,
    },
}

impl WorkerStore {
    /// The Redis store without its layers.
    pub(super) fn redis(&self) -> Option<&RedisStore> {
        match self {
            Self::Memory(_) => None,
            Self::Redis { redis, .. } => Some(redis),
        }
    }

    /// Resolves with the reason when a task of the Redis store dies; otherwise pending.
    pub(super) fn died(&self) -> BoxFuture<'static, Box<dyn Error + Send + Sync>> {
        match self.redis() {
            Some(redis) => redis.died().map(Into::into).boxed(),
            None => std::future::pending().boxed(),
        }
    }

    /// Returns unused units, and closes the Redis store, if there is one.
    pub(super) fn close(&self) -> BoxFuture<'static, ()> {
        let Self::Redis { redis, stop, .. } = self else {
            return std::future::ready(()).boxed();
        };
        let (redis, stop) = (redis.clone(), stop.clone());
        let close = async move {
            stop.cancel();
            if let Err(error) = redis.shutdown().await {
                tracing::error!(%error, "store task died");
            }
        };
        close.boxed()
    }
}

impl Store for WorkerStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        match self {
            Self::Memory(store) => store.decide(charges).await,
            // Boxed because this future would double every decision's future.
            Self::Redis { layered, .. } => Box::pin(layered.decide(charges)).await,
        }
    }
}

/// The counters themselves, without the layers that answer for them. For operators.
#[derive(Debug)]
pub(super) struct AuthoritativeStore {
    /// `None` if the counters are in `memory`.
    pub(super) redis: Option<RedisStore>,
    /// All counters; with Redis, only counters of the failure policy `local`.
    pub(super) memory: Arc<MemoryStore<SystemClock>>,
    /// Denials of a reset counter are removed from it. Its clock is shared with the layers over this cache.
    pub(super) denials: Option<Denials>,
    /// Units of a reset counter are dropped from it.
    pub(super) leases: Arc<Leases>,
}

impl Store for AuthoritativeStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let Some(redis) = self.redis.as_ref().filter(|_| !charges.need_no_store()) else {
            return self.memory.decide(charges).await;
        };
        let has_refunds = charges.values().any(|charge| charge.cost.refunded() > 0);
        if !has_refunds {
            return redis.decide(charges).await;
        }
        charges.keys().for_each(|key| self.forget_denial(key));
        let outcomes = redis.decide(charges).await;
        charges.keys().for_each(|key| self.forget_denial(key));
        outcomes
    }
}

impl AuthoritativeStore {
    fn forget_denial(&self, key: &str) {
        if let Some((denials, clock)) = &self.denials {
            denials.forget(key, clock.now_us());
        }
    }

    /// Drops what this process itself keeps of a counter. Call it before the counter is removed or set, and again
    /// afterwards.
    fn forget(&self, key: &str) {
        self.forget_denial(key);
        self.leases.forget(key);
    }
}

impl Listing for AuthoritativeStore {
    async fn list(&self, start: &str, cursor: Option<&str>) -> Result<Option<KeyPage>, StoreError> {
        match &self.redis {
            Some(redis) => redis.list(start, cursor).await,
            None => self.memory.list(start, cursor).await,
        }
    }
}

impl Reset for AuthoritativeStore {
    async fn reset(&self, charges: &Charges) -> Result<Vec<bool>, StoreError> {
        let had_units = self.memory.reset(charges).await?;
        let Some(redis) = &self.redis else {
            return Ok(had_units);
        };
        charges.keys().for_each(|key| self.forget(key));
        let had_units = redis.reset(charges).await;
        charges.keys().for_each(|key| self.forget(key));
        had_units
    }

    async fn replace(&self, key: &str, charge: &Charge) -> Result<Outcome, StoreError> {
        let Some(redis) = &self.redis else {
            return self.memory.replace(key, charge).await;
        };
        self.forget(key);
        let outcome = redis.replace(key, charge).await;
        self.forget(key);
        outcome
    }

    fn borrowed(&self, key: &str) -> u64 {
        self.leases.held(key)
    }

    async fn slot_ends(&self, key: &str, now_us: u64) -> Result<Vec<u64>, StoreError> {
        match &self.redis {
            Some(redis) => redis.slot_ends(key, now_us).await,
            None => self.memory.slot_ends(key, now_us).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_future<L, F>(_: fn(&'static L, &'static Charges) -> F) -> usize {
        size_of::<F>()
    }

    /// `grpc/fast/decisions.rs` has the reason.
    #[test]
    fn the_future_of_the_layers_fits_into_a_small_block() {
        let size = size_of_future(<Fallback<Answering, SystemClock> as Store>::decide);
        assert!(size <= 1_024, "{size} bytes");
    }
}
