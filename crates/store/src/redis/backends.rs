//! Routes requests to their counters' backend. There is one backend, and perhaps one for the counters of one-second
//! limits, and one for counters that all regions share.
//!
//! A backend is a single server, with or without sentinels, or a cluster. Only this module distinguishes them.

use std::sync::Arc;
use std::time::Duration;

use engine::{Charge, StoreError, is_global_key};
use futures_util::future::join_all;
use redis::FromRedisValue;
use tokio::time::Instant;

use super::cluster::{self, Router};
use super::connect::Target;
use super::error::{OptionsError, RouteError};
use super::node::{CallMode, Node, QueueDepth, check_writes};
use super::options::{RedisOptions, Topology};
use super::rows::SideCall;
use super::script::{EncodedRequest, RequestReply};
use super::slot::slot_of_key;
use super::tasks::Tasks;
use crate::observer::Observer;

/// Period of the limits whose counters can have their own servers.
const PERIOD_US: u64 = 1_000_000;

/// Names of the backends. Those of the further ones begin their server names.
const MAIN: &str = "main";
const PER_SECOND: &str = "per_second";
const HOME: &str = "home";

pub(super) struct Backends {
    pub(super) options: RedisOptions,
    main: Backend,
    /// For the counters of one-second limits; `None` if they are in the main backend.
    per_second: Option<Backend>,
    /// For counters that all regions share, if there are any.
    home: Option<Backend>,
}

/// The servers behind the URLs of the settings.
pub(super) struct Backend {
    /// `None` if the store has one backend.
    name: Option<&'static str>,
    servers: Servers,
    observer: Arc<dyn Observer>,
    /// Decision timeout.
    timeout: Duration,
}

enum Servers {
    One(Arc<Node>),
    Cluster(Arc<Router>),
}

/// Where a counter is stored. One script call can decide all counters of one place. The default is for a request
/// without counters, which any server can answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    group: Group,
    /// `None` on a single server, and for any server of a cluster.
    slot: Option<u16>,
}

/// The backend of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Group {
    #[default]
    Main,
    PerSecond,
    Home,
}

/// State of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatus {
    /// `None` if the store has one backend.
    pub name: Option<&'static str>,
    /// Why the backend cannot decide: a probe's error, or the error that opened the breakers of all its servers.
    pub failure: Option<StoreError>,
}

/// Why a store cannot decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// Names of the backends that cannot decide; `None` if the store has one backend.
    pub backends: Option<String>,
    /// `true` if only the servers that all regions share cannot decide.
    pub is_of_home: bool,
    /// Error of the first of these backends.
    pub error: StoreError,
}

impl StoreFailure {
    /// `None` if every backend decides.
    pub fn of_backends(backends: &[BackendStatus]) -> Option<Self> {
        let failed: Vec<&BackendStatus> =
            backends.iter().filter(|backend| backend.failure.is_some()).collect();
        let error = failed.first()?.failure.clone()?;
        let names: Vec<&str> = failed.iter().filter_map(|backend| backend.name).collect();
        let is_of_home = names == [HOME];
        Some(Self { backends: (!names.is_empty()).then(|| names.join(" and ")), is_of_home, error })
    }
}

impl From<StoreError> for StoreFailure {
    fn from(error: StoreError) -> Self {
        Self { backends: None, is_of_home: false, error }
    }
}

impl Backends {
    /// Starts the batchers as `tasks`. The servers can start later. The second observer is for the servers of
    /// one-second limits, the third for those that all regions share.
    pub(super) fn start(
        options: &RedisOptions,
        [of_main, of_per_second, of_home]: [Arc<dyn Observer>; 3],
        tasks: &Arc<Tasks>,
    ) -> Result<Self, OptionsError> {
        let has_others = options.per_second.is_some() || options.home.is_some();
        let start = |options: Option<RedisOptions>, name, observer| {
            options.map(|options| Backend::start(&options, Some(name), observer, tasks)).transpose()
        };
        Ok(Self {
            options: options.clone(),
            main: Backend::start(options, has_others.then_some(MAIN), of_main, tasks)?,
            per_second: start(options.of_per_second(), PER_SECOND, of_per_second)?,
            home: start(options.of_home(), HOME, of_home)?,
        })
    }

    /// The only server of the store; `None` for a cluster, or with several backends.
    pub(super) fn only_node(&self) -> Option<&Node> {
        match (&self.main.servers, self.main.name) {
            (Servers::One(node), None) => Some(node),
            _ => None,
        }
    }

    /// `key` is the counter's key with its prefix.
    pub(super) fn place(&self, charge: &Charge, key: &str) -> Place {
        let group = match (&self.home, &self.per_second) {
            (Some(_), _) if is_global_key(key) => Group::Home,
            (_, Some(_)) if is_per_second(charge) => Group::PerSecond,
            _ => Group::Main,
        };
        let place = Place { group, slot: None };
        Place { slot: self.backend(place).slot_of(key), ..place }
    }

    /// The places of a request's counters. The request is the encoding of `charges`.
    pub(super) fn places<'r>(
        &self,
        charges: impl Iterator<Item = &'r Charge>,
        request: &'r EncodedRequest,
    ) -> impl Iterator<Item = Place> {
        let with_counter = charges.filter(|charge| charge.kernel.has_counter());
        with_counter.zip(request.keys()).map(|(charge, key)| self.place(charge, key))
    }

    /// Sends a request whose counters are all in one place.
    pub(super) async fn call(
        &self,
        request: EncodedRequest,
        place: Place,
        deadline: Instant,
    ) -> Result<RequestReply, RouteError> {
        self.backend(place).call(request, place.slot, deadline).await
    }

    /// Sends a side call to the main backend's server that stores its keys.
    pub(super) async fn side_call<T: FromRedisValue>(&self, call: &SideCall<'_>) -> Result<T, StoreError> {
        match &self.main.servers {
            Servers::One(node) => Ok(call.send(node, CallMode::Single).await?),
            Servers::Cluster(router) => router.side_call(call).await,
        }
    }

    /// Has every server decide a charge to a probe counter, and to a sliding log if `needs_log`.
    pub(super) async fn probe(&self, needs_log: bool) -> Result<(), StoreFailure> {
        let probes = self.all().map(async |backend| {
            let failure = backend.probe(&self.options.key_prefix, needs_log).await.err();
            BackendStatus { name: backend.name, failure }
        });
        StoreFailure::of_backends(&join_all(probes).await).map_or(Ok(()), Err)
    }

    /// Returns for each backend why all its breakers are open.
    pub(super) fn status(&self) -> Vec<BackendStatus> {
        let status = |backend: &Backend| BackendStatus {
            name: backend.name,
            failure: backend.breaker_cause().map(Arc::unwrap_or_clone),
        };
        self.all().map(status).collect()
    }

    /// Waits until a cluster's servers are known.
    pub(super) async fn find_servers(&self, deadline: Instant) -> Result<(), StoreError> {
        for backend in self.all() {
            if let Servers::Cluster(router) = &backend.servers {
                router.probe_slots(deadline).await?;
            }
        }
        Ok(())
    }

    /// The servers known now.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.all().flat_map(Backend::nodes).collect()
    }

    /// Refuses new requests, and answers waiting ones.
    pub(super) fn close(&self) {
        self.all().for_each(Backend::close);
    }

    /// Reports that a charge in this place may stay recorded although its request was denied.
    pub(super) fn lost_undo(&self, place: Place) {
        self.backend(place).observer.lost_undo();
    }

    /// Decision timeout of the servers of this place.
    pub(super) fn timeout(&self, place: Place) -> Duration {
        self.backend(place).timeout
    }

    /// When a call to this place ends that begins now.
    pub(super) fn deadline(&self, place: Place) -> Instant {
        Instant::now() + self.timeout(place)
    }

    fn all(&self) -> impl Iterator<Item = &Backend> {
        std::iter::once(&self.main).chain(&self.per_second).chain(&self.home)
    }

    fn backend(&self, place: Place) -> &Backend {
        let other = match place.group {
            Group::Main => None,
            Group::PerSecond => self.per_second.as_ref(),
            Group::Home => self.home.as_ref(),
        };
        other.unwrap_or(&self.main)
    }
}

impl Backend {
    fn start(
        options: &RedisOptions,
        name: Option<&'static str>,
        observer: Arc<dyn Observer>,
        tasks: &Arc<Tasks>,
    ) -> Result<Self, OptionsError> {
        let prefix = name.filter(|name| *name != MAIN).unwrap_or_default();
        let queue_depth = QueueDepth::new(Arc::clone(&observer));
        let servers = match options.topology {
            Topology::Standalone | Topology::Sentinel(_) => {
                let target = Target::new(options)?;
                Servers::One(Arc::new(Node::start(prefix.to_owned(), target, options, queue_depth, tasks)))
            }
            Topology::Cluster => Servers::Cluster(cluster::start(options, prefix, queue_depth, tasks)?),
        };
        Ok(Self { name, servers, observer, timeout: options.timeout })
    }

    /// `None` on a single server, which does not have slots.
    fn slot_of(&self, key: &str) -> Option<u16> {
        match self.servers {
            Servers::One(_) => None,
            Servers::Cluster(_) => Some(slot_of_key(key)),
        }
    }

    async fn call(
        &self,
        request: EncodedRequest,
        slot: Option<u16>,
        deadline: Instant,
    ) -> Result<RequestReply, RouteError> {
        match &self.servers {
            Servers::One(node) => {
                let answer = node.call(request, CallMode::Batched(None), deadline).await;
                Ok(answer.map_err(StoreError::from)?)
            }
            Servers::Cluster(router) => router.call(request, slot, deadline).await,
        }
    }

    async fn probe(&self, key_prefix: &str, needs_log: bool) -> Result<(), StoreError> {
        let slots = match &self.servers {
            Servers::One(_) => vec![None],
            Servers::Cluster(router) => router.probe_slots(Instant::now() + self.timeout).await?,
        };
        let call = async |request: EncodedRequest| {
            let slot = request.keys().next().and_then(|key| self.slot_of(key));
            Ok(self.call(request, slot, Instant::now() + self.timeout).await?)
        };
        let probes = slots.iter().map(|slot| check_writes(key_prefix, *slot, needs_log, call));
        join_all(probes).await.into_iter().collect()
    }

    fn nodes(&self) -> Vec<Arc<Node>> {
        match &self.servers {
            Servers::One(node) => vec![Arc::clone(node)],
            Servers::Cluster(router) => router.nodes(),
        }
    }

    /// Returns the failure that keeps a breaker open, if all breakers are open.
    fn breaker_cause(&self) -> Option<Arc<StoreError>> {
        let causes: Option<Vec<_>> = self.nodes().iter().map(|node| node.breaker_cause()).collect();
        causes?.pop()
    }

    fn close(&self) {
        match &self.servers {
            Servers::One(node) => node.close(),
            Servers::Cluster(router) => router.close(),
        }
    }
}

/// Slots stay with the counters that commands for operators read.
fn is_per_second(charge: &Charge) -> bool {
    charge.kernel.period_us() == Some(PERIOD_US) && charge.kernel.is_freed_by_time()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::algorithm::{
        Blocked, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow, Slots,
    };
    use engine::{Charging, Cost, FailurePolicy, Pacing, Role};

    #[test]
    fn limits_of_every_algorithm_belong_to_the_backend_of_their_period() {
        let is_here = |kernel| {
            let (cost, charging, role) = (Cost::take(1), Charging::Postpaid, Role::Enforce);
            is_per_second(&Charge { kernel, cost, charging, role, on_store_failure: FailurePolicy::Error })
        };
        for period_us in [999_999, PERIOD_US, PERIOD_US + 1, 60 * PERIOD_US] {
            let kernels = [
                Kernel::FixedWindow(FixedWindow::new(5, period_us)),
                Kernel::SlidingWindow(SlidingWindow::new(5, period_us)),
                Kernel::SlidingLog(SlidingLog::new(5, period_us)),
                Kernel::Gcra(Gcra::new(5, period_us, 9, Pacing::Meter)),
                Kernel::IntervalBucket(IntervalBucket::new(9, 5, period_us)),
            ];
            for kernel in kernels {
                assert_eq!(is_here(kernel), period_us == PERIOD_US, "{kernel}");
            }
        }
        assert!(!is_here(Kernel::Blocked(Blocked::new(PERIOD_US))), "it has no counter");
        assert!(!is_here(Kernel::Slots(Slots::new(5, PERIOD_US))));
    }
}
