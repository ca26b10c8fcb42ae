//! Makes the stores of the process and their layers, and holds what the workers share. The only file that names a
//! remote store's type.

use std::num::NonZeroU32;
use std::sync::Arc;

use parking_lot::Mutex;

use super::status::{RedisGroupView, RedisView, StoreView};
use crate::clock::{Clock, MonotonicClock, SystemClock};
use crate::settings::{Settings, StoreKind};
use crate::store::any::{AnyStore, AuthoritativeStore};
use crate::store::deny_cache::{DenyCache, DenyCacheOptions, DenyCached};
use crate::store::fallback::{Fallback, Local};
use crate::store::memory::MemoryStore;
use crate::store::observed::Observed;
use crate::store::redis::{OptionsError, RedisOptions, RedisStore, RedisUrl, Topology, script_sha1};
use crate::store::remote::{RemoteStore, ServerReport};
use crate::telemetry::availability::Availability;
use crate::telemetry::metrics::{Metrics, StoreMeter};
use crate::transport::grpc::BoxError;

pub(super) type Remote = RedisStore;
pub(super) type WorkerStore = AnyStore<Remote, (StoreMeter, Arc<Availability>)>;

#[derive(Debug)]
pub(super) struct Stores {
    kind: StoreKind,
    redis: RedisOptions,
    local_share: NonZeroU32,
    metrics: Metrics,
    /// All counters; beside a remote store, only the counters of the failure policy `local`.
    memory: Arc<MemoryStore<SystemClock>>,
    /// `None` if the deny cache is disabled.
    denials: Option<Denials>,
    availability: Arc<Availability>,
    /// One store per worker, and one for the HTTP port.
    workers: Mutex<Vec<Remote>>,
    /// Empty until Redis has answered once.
    servers: Mutex<Vec<ServerReport>>,
}

#[derive(Debug)]
struct Denials {
    cache: Arc<DenyCache>,
    clock: MonotonicClock,
}

impl Stores {
    pub(super) fn new(settings: &Settings, metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let Settings { store: settings, local_share, .. } = settings;
        let memory = Arc::new(MemoryStore::new(settings.memory, SystemClock));
        let watched = Arc::clone(&memory);
        metrics.watch_memory(move || watched.stats())?;
        if settings.kind == StoreKind::Redis && settings.redis.per_second.is_some() {
            metrics.watch_per_second()?;
        }
        let denials = match settings.kind {
            StoreKind::Redis => {
                settings.deny_cache.map(|options| deny_cache(options, metrics)).transpose()?
            }
            StoreKind::Memory => None,
        };
        Ok(Self {
            kind: settings.kind,
            redis: settings.redis.clone(),
            local_share: *local_share,
            metrics: metrics.clone(),
            memory,
            denials,
            availability: Arc::default(),
            workers: Mutex::default(),
            servers: Mutex::default(),
        })
    }

    /// A store for the current runtime.
    pub(super) fn make_store(&self) -> Result<WorkerStore, BoxError> {
        match self.kind {
            StoreKind::Memory => Ok(AnyStore::Memory(Arc::clone(&self.memory))),
            StoreKind::Redis => {
                let remote = self.make_remote()?;
                self.workers.lock().push(remote.clone());
                Ok(self.with_layers(remote))
            }
        }
    }

    fn make_remote(&self) -> Result<Remote, OptionsError> {
        let observer = Arc::new((self.metrics.batches(), Arc::clone(&self.availability)));
        if self.redis.per_second.is_none() {
            return RedisStore::new(&self.redis, observer);
        }
        let per_second = Arc::new((self.metrics.per_second_batches(), Arc::clone(&self.availability)));
        RedisStore::with_observers(&self.redis, [observer, per_second])
    }

    fn with_layers(&self, remote: Remote) -> WorkerStore {
        let observer = (self.metrics.store("redis"), Arc::clone(&self.availability));
        let observed = Observed::new(remote.clone(), observer);
        let denials = self.denials.as_ref().map(|denials| (Arc::clone(&denials.cache), denials.clock));
        let local = Local { store: Arc::clone(&self.memory), instances: self.local_share };
        let layered = Fallback::new(DenyCached::new(observed, denials), local);
        AnyStore::Remote { layered, remote }
    }

    /// The counters themselves, for the admin port.
    pub(super) fn authoritative(&self, remote: Option<Remote>) -> AuthoritativeStore<Remote> {
        let denials = self.denials.as_ref().map(|denials| (Arc::clone(&denials.cache), denials.clock));
        AuthoritativeStore { remote, memory: Arc::clone(&self.memory), denials }
    }

    /// Removes a fraction of the expired counters, and all expired denials.
    pub(super) fn sweep(&self) {
        self.memory.sweep();
        if let Some(denials) = &self.denials {
            denials.cache.sweep(denials.clock.now_us());
        }
    }

    /// Forgets every denial, because the rules have changed.
    pub(super) fn purge_denials(&self) {
        if let Some(denials) = &self.denials {
            denials.cache.purge();
        }
    }

    pub(super) fn availability(&self) -> &Availability {
        &self.availability
    }

    pub(super) fn set_servers(&self, servers: Vec<ServerReport>) {
        *self.servers.lock() = servers;
    }

    pub(super) fn view(&self) -> StoreView {
        let group = |topology: &Topology, urls: &[RedisUrl]| RedisGroupView {
            topology: topology.name(),
            addresses: urls.iter().map(ToString::to_string).collect(),
        };
        let redis = || RedisView {
            main: group(&self.redis.topology, &self.redis.urls),
            per_second: self.redis.per_second.as_ref().map(|options| group(&options.topology, &options.urls)),
            script: script_sha1().to_string(),
            servers: self.servers.lock().clone(),
            nodes: self.workers.lock().iter().flat_map(RemoteStore::nodes).collect(),
            last_outage: self.availability.last_outage(),
            denials: self.denials.as_ref().map(|denials| denials.cache.stats()),
        };
        let redis = (self.kind == StoreKind::Redis).then(redis);
        StoreView { memory: self.memory.stats(), redis }
    }
}

fn deny_cache(options: DenyCacheOptions, metrics: &Metrics) -> Result<Denials, prometheus::Error> {
    let cache = Arc::new(DenyCache::new(options));
    let watched = Arc::clone(&cache);
    metrics.watch_deny_cache(move || watched.stats())?;
    Ok(Denials { cache, clock: MonotonicClock::default() })
}
