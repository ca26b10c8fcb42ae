//! The one or two backends of a store: counters of limits of one second may have a backend of their own. A request that
//! meets such limits and others is then decided in parts (`reserve`), like a request over several slots of a cluster.

use std::sync::Arc;
use std::time::Duration;

use engine::{Charge, Charges, Outcomes, StoreError};
use futures_util::FutureExt;
use futures_util::future::{join_all, select_all};
use tokio::time::Instant;

use super::backend::Backend;
use super::connect::{ConnectTimeouts, Target};
use super::error::OptionsError;
use super::node::Node;
use super::options::RedisOptions;
use super::reserve::{self, Places, RouteError};
use super::script::{EncodedRequest, RequestReply};
use super::slot::slot_of_key;
use super::tasks::{TaskError, Tasks};
use crate::breaker::BreakerState;
use crate::observer::{BreakerTransition, Observer};

/// The period of the limits whose counters may be on servers of their own.
const PERIOD_US: u64 = 1_000_000;

/// The name of the second backend, and the prefix of the names of its servers.
const PER_SECOND: &str = "per_second";
const MAIN: &str = "main";

/// The backends of a store.
pub(super) struct Backends {
    options: RedisOptions,
    main: Backend,
    /// The backend of the counters of limits of one second; `None` where these counters are in the main backend.
    per_second: Option<Backend>,
    /// The observers of the main backend, and of the backend for limits of one second.
    observers: [Arc<dyn Observer>; 2],
}

/// Counters that one script call can decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CounterPlace {
    is_per_second: bool,
    /// `None` for a single server.
    slot: Option<u16>,
}

/// Whether a server of a backend decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendStatus {
    /// The name; `None` where the store has one backend.
    pub name: Option<&'static str>,
    /// Why the backend does not decide: the error of a probe, or the error that opened the breakers of all its servers.
    pub failure: Option<StoreError>,
}

/// Why a store does not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// The names of the backends that do not decide; `None` where the store has one backend.
    pub backends: Option<String>,
    /// The error of the first of these backends.
    pub error: StoreError,
}

impl StoreFailure {
    /// `None` if each backend decides.
    #[must_use]
    pub fn of_backends(backends: &[BackendStatus]) -> Option<Self> {
        let failed: Vec<&BackendStatus> =
            backends.iter().filter(|backend| backend.failure.is_some()).collect();
        let error = failed.first()?.failure.clone()?;
        let names: Vec<&str> = failed.iter().filter_map(|backend| backend.name).collect();
        Some(Self { backends: (!names.is_empty()).then(|| names.join(" and ")), error })
    }
}

impl From<StoreError> for StoreFailure {
    fn from(error: StoreError) -> Self {
        Self { backends: None, error }
    }
}

impl Backends {
    pub(super) fn start(
        options: &RedisOptions,
        observers: [Arc<dyn Observer>; 2],
    ) -> Result<Self, OptionsError> {
        let [main_observer, per_second_observer] = observers.clone();
        let main = Backend::start(options, main_observer)?;
        let per_second = options
            .of_per_second()
            .map(|options| Backend::start(&options, Arc::new(PerSecondObserver(per_second_observer))));
        Ok(Self { options: options.clone(), main, per_second: per_second.transpose()?, observers })
    }

    pub(super) fn options(&self) -> &RedisOptions {
        &self.options
    }

    /// The only server of the store; `None` if there is a cluster, or a second backend.
    pub(super) fn only_node(&self) -> Option<&Node> {
        match (&self.main, &self.per_second) {
            (Backend::One(node, _), None) => Some(node),
            _ => None,
        }
    }

    /// Decides a request whose counters may be in several places. `request` is the encoding of `charges`. A request
    /// over two backends goes on as one of `tasks` when its caller is gone.
    pub(super) async fn decide(
        self: &Arc<Self>,
        tasks: &Tasks,
        charges: &Charges,
        request: EncodedRequest,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        match (&self.main, &self.per_second) {
            (Backend::Cluster(cluster), None) => cluster.decide(charges, request, deadline).await,
            _ => reserve::decide(self, tasks, charges, request, deadline).await,
        }
    }

    /// The backends with their names; a single backend has no name.
    fn all(&self) -> impl Iterator<Item = (Option<&'static str>, &Backend)> {
        let main = self.per_second.as_ref().map(|_| MAIN);
        let per_second = self.per_second.iter().map(|backend| (Some(PER_SECOND), backend));
        std::iter::once((main, &self.main)).chain(per_second)
    }

    /// Asks every server for a decision on a counter of its own, and on a sliding log if one is needed.
    pub(super) async fn probe(&self, needs_log: bool) -> Result<(), StoreFailure> {
        let probes = self.all().map(async |(name, backend)| {
            let failure = backend.probe(&self.options, needs_log).await.err();
            BackendStatus { name, failure }
        });
        StoreFailure::of_backends(&join_all(probes).await).map_or(Ok(()), Err)
    }

    /// For each backend, why the breakers of all its servers are open.
    pub(super) fn status(&self) -> Vec<BackendStatus> {
        let status = |(name, backend): (_, &Backend)| {
            let failure = backend.breaker_cause().map(Arc::unwrap_or_clone);
            BackendStatus { name, failure }
        };
        self.all().map(status).collect()
    }

    /// Sends a request about the counter of `charge`, and waits for its answer.
    pub(super) async fn submit(
        &self,
        charge: &Charge,
        request: EncodedRequest,
    ) -> Result<RequestReply, StoreError> {
        self.backend(is_per_second(charge)).submit(request, self.deadline()).await
    }

    /// The servers known at present, and how to connect to them.
    pub(super) fn targets(&self) -> Vec<(String, Target)> {
        let targets = |(name, backend): (Option<&str>, &Backend)| {
            let targets = backend.targets().into_iter();
            targets.map(|(address, target)| (node_name(name, address), target)).collect::<Vec<_>>()
        };
        self.all().flat_map(targets).collect()
    }

    /// The servers known at present, and the states of their breakers.
    pub(super) fn nodes(&self) -> Vec<(String, BreakerState)> {
        let nodes = |(name, backend): (Option<&str>, &Backend)| {
            let nodes = backend.nodes().into_iter();
            nodes.map(|(address, state)| (node_name(name, address), state)).collect::<Vec<_>>()
        };
        self.all().flat_map(nodes).collect()
    }

    /// The connections for decisions that were opened since the start, to the servers known at present.
    pub(super) fn connections_opened(&self) -> u64 {
        self.all().map(|(_, backend)| backend.connections_opened()).sum()
    }

    /// Refuses further requests, and answers those that wait.
    pub(super) fn close(&self) {
        self.all().for_each(|(_, backend)| backend.close());
    }

    /// Closes the servers, and returns when their tasks have ended.
    pub(super) async fn shutdown(&self) -> Result<(), TaskError> {
        let mut result = Ok(());
        for (_, backend) in self.all() {
            result = result.and(backend.shutdown().await);
        }
        result
    }

    /// Resolves when a background task has died; pending for ever otherwise.
    pub(super) fn died(&self) -> impl Future<Output = TaskError> + Send + use<> {
        let died: Vec<_> = self.all().map(|(_, backend)| backend.died().boxed()).collect();
        select_all(died).map(|(first, ..)| first)
    }

    fn backend(&self, is_per_second: bool) -> &Backend {
        self.per_second.as_ref().filter(|_| is_per_second).unwrap_or(&self.main)
    }

    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.options.timeout
    }
}

impl Places for Backends {
    type Place = CounterPlace;

    fn place(&self, charge: &Charge, key: &str) -> CounterPlace {
        let is_per_second = is_per_second(charge);
        let slot = match self.backend(is_per_second) {
            Backend::One(..) => None,
            Backend::Cluster(_) => Some(slot_of_key(key)),
        };
        CounterPlace { is_per_second, slot }
    }

    async fn call(
        &self,
        request: EncodedRequest,
        place: Option<CounterPlace>,
        deadline: Instant,
    ) -> Result<RequestReply, RouteError> {
        let place = place.unwrap_or(CounterPlace { is_per_second: false, slot: None });
        self.backend(place.is_per_second).call(request, place.slot, deadline).await
    }

    fn key_prefix(&self) -> &str {
        &self.options.key_prefix
    }

    fn time_for(&self, round_trips: u32, least: Duration) -> Duration {
        ConnectTimeouts::new(self.options.timeout).at_least(least, round_trips)
    }

    fn lost_undo(&self, place: Option<CounterPlace>) {
        let is_per_second = place.is_some_and(|place| place.is_per_second);
        self.observers[usize::from(is_per_second)].lost_undo();
    }
}

/// Reports the servers of the second backend by their names in the store.
#[derive(Debug)]
struct PerSecondObserver(Arc<dyn Observer>);

impl Observer for PerSecondObserver {
    fn batch(&self, requests: usize) {
        self.0.batch(requests);
    }

    fn queue_depth(&self, requests: usize) {
        self.0.queue_depth(requests);
    }

    fn lost_undo(&self) {
        self.0.lost_undo();
    }

    fn breaker(&self, transition: BreakerTransition<'_>) {
        self.0.breaker(BreakerTransition {
            node: &node_name(Some(PER_SECOND), transition.node.to_owned()),
            ..transition
        });
    }
}

/// The name of a server in the store.
fn node_name(backend: Option<&str>, address: String) -> String {
    match backend {
        Some(PER_SECOND) if address.is_empty() => PER_SECOND.to_owned(),
        Some(PER_SECOND) => format!("{PER_SECOND} {address}"),
        _ => address,
    }
}

fn is_per_second(charge: &Charge) -> bool {
    charge.kernel.period_us() == Some(PERIOD_US)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::algorithm::{Blocked, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow};
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
    }

    #[test]
    fn the_servers_of_the_second_backend_have_its_name() {
        let named = |backend| ["", "a:1"].map(|address| node_name(backend, address.to_owned()));
        assert_eq!(named(Some(PER_SECOND)), ["per_second", "per_second a:1"]);
        assert_eq!(named(Some(MAIN)), ["", "a:1"]);
        assert_eq!(named(None), ["", "a:1"]);
    }
}
