//! The stores of the process: which there are, what lies over them, who shares what.

use std::num::NonZeroU32;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::clock::{Clock, MonotonicClock, SystemClock};
use crate::engine::{Charges, Outcomes, Reset, Store, StoreError};
use crate::settings::{Settings, StoreKind};
use crate::store::deny_cache::{DenyCache, DenyCacheOptions, DenyCached};
use crate::store::fallback::{Fallback, Local};
use crate::store::memory::MemoryStore;
use crate::store::observed::Observed;
use crate::store::redis::{RedisOptions, RedisStore};
use crate::telemetry::metrics::Metrics;
use crate::transport::grpc::BoxError;

use super::availability::{Availability, Calls, Watched};
use super::status::StoreStatus;

/// Makes the stores of all workers.
#[derive(Debug)]
pub(super) struct Stores {
    kind: StoreKind,
    /// The counters themselves, or what limits with the policy `local` count by while Redis is away.
    pub(super) memory: Arc<MemoryStore<SystemClock>>,
    redis: RedisOptions,
    local_share: NonZeroU32,
    /// What Redis has denied; `None` where it is not to be remembered.
    pub(super) denials: Option<Denials>,
    metrics: Metrics,
    pub(super) availability: Arc<Availability>,
    /// For the admin page.
    pub(super) status: StoreStatus,
}

/// Shared by all workers: one that is denied by one of them is denied by all.
#[derive(Debug)]
pub(super) struct Denials {
    pub(super) cache: Arc<DenyCache>,
    clock: MonotonicClock,
}

impl Denials {
    pub(super) fn sweep(&self) {
        self.cache.sweep(self.clock.now_us());
    }
}

type Layered<S> = Fallback<DenyCached<Observed<S, Watched>, MonotonicClock>, SystemClock>;

/// The store of one worker.
#[derive(Debug)]
pub(super) enum AnyStore {
    /// Shared by all workers. Not measured: reading the clock would take longer than the decision.
    Memory(Arc<MemoryStore<SystemClock>>),
    /// The worker's own, and the same without its layers.
    Redis(Layered<RedisStore>, RedisStore),
}

impl Stores {
    pub(super) fn new(settings: &Settings, metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let Settings { store: settings, local_share, .. } = settings;
        let memory = Arc::new(MemoryStore::new(settings.memory, SystemClock));
        let counted = Arc::clone(&memory);
        metrics.watch_memory(move || counted.stats())?;
        let denials = match settings.kind {
            StoreKind::Redis => {
                settings.deny_cache.map(|options| deny_cache(options, metrics)).transpose()?
            }
            StoreKind::Memory => None,
        };
        Ok(Self {
            kind: settings.kind,
            status: StoreStatus::new(settings),
            memory,
            redis: settings.redis.clone(),
            local_share: *local_share,
            denials,
            metrics: metrics.clone(),
            availability: Arc::default(),
        })
    }

    /// Has everyone who was denied ask the counters again.
    pub(super) fn reset_denials(&self) {
        if let Some(denials) = &self.denials {
            denials.cache.purge();
        }
    }

    /// The counters themselves, for those who look at them rather than decide by them.
    pub(super) fn truth(&self, redis: Option<RedisStore>) -> Truth {
        let denials = self.denials.as_ref().map(|denials| Arc::clone(&denials.cache));
        Truth { redis, memory: Arc::clone(&self.memory), denials }
    }

    /// A store for whoever runs on this runtime.
    pub(super) fn make(&self) -> Result<AnyStore, BoxError> {
        let memory = Arc::clone(&self.memory);
        match self.kind {
            StoreKind::Memory => Ok(AnyStore::Memory(memory)),
            StoreKind::Redis => {
                let availability = Arc::clone(&self.availability);
                let calls = Calls { meter: self.metrics.batches(), availability };
                let redis = RedisStore::new(&self.redis, Arc::new(calls))?;
                self.status.joins(redis.clone());
                let availability = Arc::clone(&self.availability);
                let watched = Watched { meter: self.metrics.store("redis"), availability };
                let local = Local { store: memory, share: self.local_share };
                let observed = Observed::new(redis.clone(), watched);
                let denials =
                    self.denials.as_ref().map(|denials| (Arc::clone(&denials.cache), denials.clock));
                let deny_cached = DenyCached::new(observed, denials);
                Ok(AnyStore::Redis(Fallback::new(deny_cached, local), redis))
            }
        }
    }
}

fn deny_cache(options: DenyCacheOptions, metrics: &Metrics) -> Result<Denials, prometheus::Error> {
    let cache = Arc::new(DenyCache::new(options));
    let counted = Arc::clone(&cache);
    metrics.watch_deny_cache(move || counted.stats())?;
    Ok(Denials { cache, clock: MonotonicClock::default() })
}

/// The counters without the layers that answer in their place.
#[derive(Debug)]
pub(super) struct Truth {
    redis: Option<RedisStore>,
    /// All counters, or beside Redis those of limits that go on locally while it is away.
    memory: Arc<MemoryStore<SystemClock>>,
    denials: Option<Arc<DenyCache>>,
}

impl Store for Truth {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        match &self.redis {
            Some(redis) => redis.decide(charges).await,
            None => self.memory.decide(charges).await,
        }
    }
}

impl Reset for Truth {
    async fn reset(&self, charges: &Charges) -> Result<Vec<bool>, StoreError> {
        let forgotten = self.memory.reset(charges).await?;
        let Some(redis) = &self.redis else {
            return Ok(forgotten);
        };
        let forgotten = redis.reset(charges).await;
        for key in charges.keys() {
            if let Some(denials) = &self.denials {
                denials.reset(key);
            }
        }
        forgotten
    }
}

impl AnyStore {
    /// Ends what runs on behalf of this store.
    pub(super) fn close(&self) -> BoxFuture<'static, ()> {
        let Some(redis) = self.redis() else {
            return Box::pin(async {});
        };
        Box::pin(async move {
            if let Err(error) = redis.shutdown().await {
                tracing::error!(%error, "a task of the Redis store had died");
            }
        })
    }

    /// Redis itself, without what answers in its place.
    pub(super) fn redis(&self) -> Option<RedisStore> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(_, redis) => Some(redis.clone()),
        }
    }
}

impl Store for AnyStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        match self {
            Self::Memory(store) => store.decide(charges).await,
            Self::Redis(store, _) => store.decide(charges).await,
        }
    }
}
