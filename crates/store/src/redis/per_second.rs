//! Counters of limits of one second on servers of their own. A request that meets such limits and others is decided in
//! parts (`reserve`), as a request over several slots of a cluster is.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use engine::{Charge, Charges, Outcomes, StoreError};
use futures_util::FutureExt;
use futures_util::future::{join_all, select};
use tokio::time::Instant;

use crate::breaker::BreakerState;
use crate::remote::{GroupStatus, ProbeFailure};
use super::connect::{ConnectBudget, Target};
use super::error::OptionsError;
use super::observer::{BreakerTransition, RedisObserver};
use super::options::RedisOptions;
use super::reserve::{self, Places, RouteError};
use super::script::{Answer, EncodedRequest};
use super::servers::Servers;
use super::slot::slot_of_key;
use super::tasks::{TaskError, Tasks};

/// The period of the limits whose counters are on servers of their own.
const PERIOD_US: u64 = 1_000_000;

/// In front of the names of these servers.
const NAME: &str = "per_second";
const MAIN_NAME: &str = "main";

/// Two groups of servers as one store.
pub(super) struct PerSecondStore {
    groups: Arc<Groups>,
    /// Requests over both groups, or over several slots of one. They finish even if the caller is gone, so that no
    /// charge stays recorded by mistake.
    requests: Tasks,
}

struct Groups {
    options: RedisOptions,
    main: Servers,
    per_second: Servers,
    /// Of the main servers and the others.
    observers: [Arc<dyn RedisObserver>; 2],
}

/// Counters that one script call can decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupPlace {
    is_per_second: bool,
    /// `None` for a single server.
    slot: Option<u16>,
}

impl PerSecondStore {
    /// `options` are those of the main servers.
    pub(super) fn start(
        options: &RedisOptions,
        per_second: &RedisOptions,
        observers: [Arc<dyn RedisObserver>; 2],
    ) -> Result<Self, OptionsError> {
        let [main_observer, per_second_observer] = observers.clone();
        let per_second_observer = Arc::new(PerSecondObserver(per_second_observer));
        let groups = Groups {
            options: options.clone(),
            main: Servers::start(options, main_observer)?,
            per_second: Servers::start(per_second, per_second_observer)?,
            observers,
        };
        Ok(Self { groups: Arc::new(groups), requests: Tasks::new() })
    }

    pub(super) async fn probe(&self, needs_log: bool) -> Result<(), ProbeFailure> {
        let options = &self.groups.options;
        let probes = self.groups().map(async |(name, servers)| {
            let failure = servers.probe(options, needs_log).await.err();
            GroupStatus { name: Some(name), failure }
        });
        ProbeFailure::of_groups(&join_all(probes).await).map_or(Ok(()), Err)
    }

    /// The groups, by name.
    pub(super) fn groups(&self) -> [(&'static str, &Servers); 2] {
        [(MAIN_NAME, &self.groups.main), (NAME, &self.groups.per_second)]
    }

    /// Decides a request. `request` is the encoding of `charges`.
    pub(super) async fn decide(
        &self,
        charges: &Charges,
        request: EncodedRequest,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        reserve::decide(&self.groups, &self.requests, (charges, request), deadline).await
    }

    /// Sends a request about the counter of `charge`.
    pub(super) async fn submit(
        &self,
        charge: &Charge,
        request: EncodedRequest,
        deadline: Instant,
    ) -> Result<Answer, StoreError> {
        let servers = self.groups.servers(is_per_second(charge));
        servers.submit(request, deadline).await
    }

    pub(super) fn targets(&self) -> Vec<(String, Target)> {
        let per_second = self.groups.per_second.targets().into_iter();
        let per_second = per_second.map(|(address, target)| (named(&address), target));
        self.groups.main.targets().into_iter().chain(per_second).collect()
    }

    pub(super) fn nodes(&self) -> Vec<(String, BreakerState)> {
        let per_second = self.groups.per_second.nodes().into_iter();
        let per_second = per_second.map(|(address, state)| (named(&address), state));
        self.groups.main.nodes().into_iter().chain(per_second).collect()
    }

    pub(super) fn close(&self) {
        self.groups.main.close();
        self.groups.per_second.close();
    }

    /// Finishes the requests over both groups, closes the servers, and waits until all tasks have ended.
    pub(super) async fn shutdown(&self) -> Result<(), TaskError> {
        let finished = self.requests.join().await;
        let main = self.groups.main.shutdown().await;
        let per_second = self.groups.per_second.shutdown().await;
        main.and(per_second).and(finished)
    }

    pub(super) fn died(&self) -> impl Future<Output = TaskError> + Send + use<> {
        let (main, per_second) = (self.groups.main.died(), self.groups.per_second.died());
        select(Box::pin(main), Box::pin(per_second)).map(|first| first.factor_first().0)
    }
}

/// Reports the servers for limits of one second by their names in the store.
struct PerSecondObserver(Arc<dyn RedisObserver>);

impl RedisObserver for PerSecondObserver {
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
        self.0.breaker(BreakerTransition { node: &named(transition.node), ..transition });
    }
}

/// The name of a server of limits of one second.
fn named(address: &str) -> String {
    if address.is_empty() { NAME.to_owned() } else { format!("{NAME} {address}") }
}

fn is_per_second(charge: &Charge) -> bool {
    charge.kernel.period_us() == Some(PERIOD_US)
}

impl Groups {
    fn servers(&self, is_per_second: bool) -> &Servers {
        if is_per_second { &self.per_second } else { &self.main }
    }
}

impl Places for Groups {
    type Place = GroupPlace;

    fn place(&self, charge: &Charge, key: &str) -> GroupPlace {
        let is_per_second = is_per_second(charge);
        let slot = match self.servers(is_per_second) {
            Servers::One(..) => None,
            Servers::Cluster(_) => Some(slot_of_key(key)),
        };
        GroupPlace { is_per_second, slot }
    }

    async fn call(
        &self,
        request: EncodedRequest,
        place: Option<GroupPlace>,
        deadline: Instant,
    ) -> Result<Answer, RouteError> {
        let place = place.unwrap_or(GroupPlace { is_per_second: false, slot: None });
        self.servers(place.is_per_second).call(request, place.slot, deadline).await
    }

    fn key_prefix(&self) -> &str {
        &self.options.key_prefix
    }

    fn time_for(&self, round_trips: u32, least: Duration) -> Duration {
        ConnectBudget::new(self.options.timeout).at_least(least, round_trips)
    }

    fn lost_undo(&self, place: Option<GroupPlace>) {
        let is_per_second = place.is_some_and(|place| place.is_per_second);
        self.observers[usize::from(is_per_second)].lost_undo();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::algorithm::{Blocked, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow};
    use engine::{Charging, Cost, FailurePolicy, Pacing, Role};

    #[test]
    fn limits_of_every_algorithm_belong_to_the_group_of_their_period() {
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
    fn the_servers_of_the_second_group_have_its_name() {
        assert_eq!([named(""), named("a:1")], ["per_second", "per_second a:1"]);
    }
}
