//! Creates the process's stores and their layers, and holds what the workers share.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use base::clock::{BootClock, Clock, MonotonicClock, SystemClock};
use engine::LimitId;
use parking_lot::Mutex;
use store::availability::Availability;
use store::breaker::BreakerState;
use store::deny_cache::{DenyCache, DenyCacheStats, DenyCached};
use store::fallback::{Fallback, Local};
use store::leases::{BorrowedUnits, LeaseStats, Leased, Leases};
use store::memory::{MemoryStats, MemoryStore};
use store::observer::{NoopObserver, Observed};
use store::redis::{
    BackendStatus, OptionsError, RedisOptions, RedisStore, RedisUrl, ServerOptions, ServerReport,
    StoreFailure, Topology, script_sha1,
};
use store::release_later::{self, ReleaseLater, ReleaseStats, Releases};

use tokio_util::sync::CancellationToken;

use super::status::{RedisBackendView, RedisView, StoreView};
use super::worker_store::{AuthoritativeStore, Denials, WorkerStore};
use crate::grpc::BoxError;
use crate::settings::{self, Settings, StoreKind};
use crate::telemetry::metrics::{Metrics, PulledStats, ServerGroup};

#[derive(Debug)]
pub(super) struct Stores {
    kind: StoreKind,
    redis: RedisOptions,
    /// Processes that share a limit with the failure policy `local`.
    pub(super) local_share: Arc<AtomicU32>,
    metrics: Metrics,
    local: LocalCounters,
    availability: Arc<Availability>,
    /// One store per worker, and one for the HTTP port.
    workers: Mutex<Vec<RedisStore>>,
    /// Empty until Redis has answered once.
    servers: Mutex<Vec<ServerReport>>,
    /// Server restarts noticed.
    restarts: AtomicU64,
}

/// A restart of a server, or a failover.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Restart {
    pub(super) address: String,
    /// Keys that the server has now, if known.
    pub(super) keys: Option<u64>,
}

/// What changed in new descriptions of the servers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ServerChanges {
    pub(super) restarts: Vec<Restart>,
    /// `true` if a server took the place of another, as in a cluster's failover: it may lack the last charges.
    pub(super) has_new_server: bool,
    /// Servers whose clock has started to differ from this machine's, each as address and difference.
    pub(super) wrong_clocks: Vec<(String, String)>,
}

/// Counters, denials and units that this process itself keeps, for metrics.
#[derive(Debug)]
pub(super) struct LocalCounters {
    /// All counters; with Redis, only counters of the failure policy `local`.
    memory: Arc<MemoryStore<SystemClock>>,
    /// `None` if the deny cache is off.
    denials: Option<Denials>,
    /// Empty unless the counters are in Redis.
    leases: Arc<Leases>,
    releases: Arc<Releases>,
    is_redis: bool,
}

impl LocalCounters {
    pub(super) fn new(settings: &settings::Store) -> Self {
        let is_redis = settings.kind == StoreKind::Redis;
        let denials = settings.deny_cache.filter(|_| is_redis);
        let denials = denials.map(|options| (Arc::new(DenyCache::new(options)), MonotonicClock::default()));
        Self {
            memory: Arc::new(MemoryStore::new(settings.memory, SystemClock)),
            denials,
            leases: Arc::new(Leases::new(settings.lease_horizon).with_home(settings.home_lease_horizon)),
            releases: Arc::default(),
            is_redis,
        }
    }

    pub(super) fn lease_stats(&self) -> Option<PulledStats<LeaseStats>> {
        let leases = Arc::clone(&self.leases);
        self.is_redis.then(|| -> PulledStats<LeaseStats> { Arc::new(move || leases.stats()) })
    }

    pub(super) fn release_stats(&self) -> Option<PulledStats<ReleaseStats>> {
        let releases = Arc::clone(&self.releases);
        self.is_redis.then(|| -> PulledStats<ReleaseStats> { Arc::new(move || releases.stats()) })
    }

    pub(super) fn memory_stats(&self) -> PulledStats<MemoryStats> {
        let memory = Arc::clone(&self.memory);
        Arc::new(move || memory.stats())
    }

    pub(super) fn deny_cache_stats(&self) -> Option<PulledStats<DenyCacheStats>> {
        let (cache, _) = self.denials.clone()?;
        Some(Arc::new(move || cache.stats()))
    }
}

impl Stores {
    pub(super) fn new(settings: &Settings, local: LocalCounters, metrics: &Metrics) -> Self {
        let Settings { store: settings, local_share, .. } = settings;
        Self {
            kind: settings.kind,
            redis: settings.redis.clone(),
            // With `auto`, 1 until Redis lists the instances: as without the setting.
            local_share: Arc::new(AtomicU32::new(local_share.map_or(1, NonZeroU32::get))),
            metrics: metrics.clone(),
            local,
            availability: Arc::default(),
            workers: Mutex::default(),
            servers: Mutex::default(),
            restarts: AtomicU64::default(),
        }
    }

    /// Creates a store for the current runtime.
    pub(super) fn make_store(&self) -> Result<WorkerStore, BoxError> {
        match self.kind {
            StoreKind::Memory => Ok(WorkerStore::Memory(Arc::clone(&self.local.memory))),
            StoreKind::Redis => {
                let redis = self.make_redis()?;
                self.workers.lock().push(redis.clone());
                Ok(self.with_layers(redis))
            }
        }
    }

    fn make_redis(&self) -> Result<RedisStore, OptionsError> {
        let meters = &self.metrics.families.stores;
        let groups = [None, Some(ServerGroup::PerSecond), Some(ServerGroup::Home)];
        let observers = groups.map(|group| self.availability.watching(meters.batches(group)));
        RedisStore::with_observers(&self.redis, observers)
    }

    fn with_layers(&self, redis: RedisStore) -> WorkerStore {
        let observer = self.availability.watching(self.metrics.families.stores.meter("redis"));
        let observed = Observed::new(redis.clone(), observer);
        let local = Local { store: Arc::clone(&self.local.memory), instances: Arc::clone(&self.local_share) };
        let denied = DenyCached::new(observed, self.local.denials.clone());
        let (leased, lender) = Leased::new(denied, Arc::clone(&self.local.leases), BootClock);
        let stop = CancellationToken::new();
        redis.spawn("lender", lender.run(stop.clone()));
        let releases = Arc::clone(&self.local.releases);
        redis.spawn("releases", release_later::run(Arc::clone(&releases), redis.clone(), stop.clone()));
        let releasing = ReleaseLater::new(leased, releases, self.redis.timeout);
        WorkerStore::Redis { layered: Fallback::new(releasing, local), redis, stop }
    }

    /// Returns the counters themselves, for the admin port.
    pub(super) fn authoritative(&self, redis: Option<RedisStore>) -> AuthoritativeStore {
        let (memory, leases) = (Arc::clone(&self.local.memory), Arc::clone(&self.local.leases));
        AuthoritativeStore { redis, memory, denials: self.local.denials.clone(), leases }
    }

    /// Returns the counters for a list, with connections of its own: no decision waits behind it.
    pub(super) fn for_list(&self) -> Result<AuthoritativeStore, OptionsError> {
        let redis = match self.kind {
            StoreKind::Memory => None,
            StoreKind::Redis => {
                let options = RedisOptions { connections: 1, ..self.redis.clone() };
                Some(RedisStore::new(&options, Arc::new(NoopObserver))?)
            }
        };
        Ok(self.authoritative(redis))
    }

    /// Removes a fraction of the expired counters, and all expired denials.
    pub(super) fn sweep(&self) {
        self.local.memory.sweep();
        if let Some((denials, clock)) = &self.local.denials {
            denials.sweep(clock.now_us());
        }
    }

    /// Forgets every denial, because the rules have changed.
    pub(super) fn purge_denials(&self) {
        if let Some((denials, _)) = &self.local.denials {
            denials.purge();
        }
    }

    /// What this process borrowed of each limit.
    pub(super) fn leases_by_limit(&self) -> HashMap<LimitId, BorrowedUnits> {
        self.local.leases.by_limit()
    }

    /// Drops the units that this process holds: a restarted server may not remember their charges.
    pub(super) fn drop_leases(&self) {
        self.local.leases.forget_all();
    }

    /// Ends the outages of servers that answer again.
    pub(super) fn end_outages(&self) {
        let nodes = self.nodes();
        self.availability.look(|name| nodes.iter().any(|(known, _)| known == name));
    }

    /// Returns why all workers' breakers are open for all servers of a group; `None` while each group has a closed one.
    pub(super) fn failure(&self) -> Option<StoreFailure> {
        let workers = self.workers.lock();
        let backends = workers.iter().map(RedisStore::backends).reduce(|some, others| {
            let both = some.into_iter().zip(others);
            both.map(|(one, other)| BackendStatus { failure: one.failure.and(other.failure), ..one })
                .collect()
        });
        StoreFailure::of_backends(&backends?)
    }

    /// Takes over new descriptions of the servers. A server without one keeps its last description.
    pub(super) fn update_servers(&self, reports: Vec<ServerReport>) -> ServerChanges {
        let mut servers = self.servers.lock();
        let changes = changes(&servers, &reports);
        self.restarts.fetch_add(changes.restarts.len() as u64, Ordering::Relaxed);
        let ahead_us = reports.iter().filter_map(|report| report.description.as_ref().ok()?.clock_ahead_us);
        if let Some(ahead_us) = ahead_us.max_by_key(|ahead_us| ahead_us.unsigned_abs()) {
            self.metrics.families.stores.set_clock_difference(ahead_us);
        }
        let of = |address: &str| servers.iter().find(|known| known.address == address).cloned();
        let described = reports.into_iter().map(|report| match &report.description {
            Ok(_) => report,
            Err(_) => of(&report.address).unwrap_or(report),
        });
        *servers = described.collect();
        changes
    }

    /// The nodes of every worker.
    fn nodes(&self) -> Vec<(String, BreakerState)> {
        self.workers.lock().iter().flat_map(RedisStore::nodes).collect()
    }

    pub(super) fn view(&self) -> StoreView {
        let group = |topology: &Topology, urls: &[RedisUrl]| RedisBackendView {
            topology: topology.into_str(),
            addresses: urls.iter().map(ToString::to_string).collect(),
        };
        let of_servers = |servers: &ServerOptions| group(&servers.topology, &servers.urls);
        let redis = || RedisView {
            main: group(&self.redis.topology, &self.redis.urls),
            per_second: self.redis.per_second.as_ref().map(of_servers),
            home: self.redis.home.as_ref().map(|home| of_servers(&home.servers)),
            script: script_sha1().to_string(),
            servers: self.servers.lock().clone(),
            nodes: self.nodes(),
            restarts: self.restarts.load(Ordering::Relaxed),
            last_outage: self.availability.last_outage(),
            denials: self.local.denials.as_ref().map(|(denials, _)| denials.stats()),
            leases: self.local.leases.stats(),
        };
        let redis = (self.kind == StoreKind::Redis).then(redis);
        StoreView { memory: self.local.memory.stats(), redis }
    }
}

/// Compares the servers that have a new description with their last one: which were restarted, and whose clock was
/// right.
fn changes(before: &[ServerReport], now: &[ServerReport]) -> ServerChanges {
    let mut changes = ServerChanges { restarts: Vec::new(), has_new_server: false, wrong_clocks: Vec::new() };
    for ServerReport { address, description } in now {
        let Ok(current) = description else { continue };
        let known = before.iter().find(|known| known.address == *address);
        let Some(known) = known.and_then(|known| known.description.as_ref().ok()) else {
            changes.has_new_server |= !before.is_empty();
            continue;
        };
        if known.run_id.is_some() && current.run_id.is_some() && known.run_id != current.run_id {
            changes.restarts.push(Restart { address: address.clone(), keys: current.keys });
        }
        if current.clocks_differ && !known.clocks_differ {
            changes.wrong_clocks.push((address.clone(), current.clock.clone()));
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::StoreError;
    use store::redis::ServerDescription;

    fn report(address: &str, run_id: Option<&str>) -> ServerReport {
        let description = run_id.map(|run_id| ServerDescription {
            server: "Redis".to_owned(),
            run_id: Some(run_id.to_owned()),
            keys: Some(3),
            eviction: String::new(),
            clock: "+2.000 ms".to_owned(),
            clock_ahead_us: Some(2_000),
            clocks_differ: false,
            concerns: Vec::new(),
        });
        ServerReport { address: address.to_owned(), description: description.ok_or(StoreError::Timeout) }
    }

    #[test]
    fn a_server_was_restarted_if_it_has_another_run_id_at_the_same_address() {
        let before = [report("a", Some("1")), report("b", Some("2")), report("c", None)];
        let same =
            [report("b", Some("2")), report("a", None), report("c", Some("3")), report("d", Some("1"))];
        assert_eq!(changes(&before, &same).restarts, []);
        let has_new = |before: &[ServerReport], now: &[ServerReport]| changes(before, now).has_new_server;
        assert!(
            has_new(&before, &same) && !has_new(&[], &same),
            "'d' is new in a failover, not at the start"
        );
        assert!(!has_new(&before, &before[..2]));
        let restarted = Restart { address: "b".to_owned(), keys: Some(3) };
        let now = [report("a", Some("1")), report("b", Some("1"))];
        assert_eq!(changes(&before, &now).restarts, [restarted]);
    }

    #[test]
    fn a_clock_that_begins_to_differ_is_told_once() {
        let right = [report("a", Some("1"))];
        let mut wrong = right.clone();
        wrong[0].description.as_mut().expect("described").clocks_differ = true;
        let told = |before: &[ServerReport], now: &[ServerReport]| changes(before, now).wrong_clocks.len();
        assert_eq!((told(&right, &right), told(&right, &wrong), told(&wrong, &wrong)), (0, 1, 0));
        assert_eq!(told(&[], &wrong), 0, "the start logs all concerns of a server");
        assert_eq!(changes(&right, &wrong).wrong_clocks, [("a".to_owned(), "+2.000 ms".to_owned())]);
    }
}
