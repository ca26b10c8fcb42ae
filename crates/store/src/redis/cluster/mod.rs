//! A Redis Cluster: which node decides a request.
//!
//! A request whose keys share a slot goes to the primary that serves the slot (`router`). A request over several slots
//! is decided in parts, slot by slot (`reserve`). Replicas are never used.

mod refresh;
mod refresh_signal;
mod router;
mod slot_map;
mod slot_ranges;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use engine::{Charges, Outcomes, StoreError};
use futures_util::future::join_all;
use tokio::time::Instant;

use self::router::{Endpoints, Router};
use crate::breaker::BreakerState;
use crate::observer::Observer;
use crate::redis::address::Address;
use crate::redis::connect::{Target, endpoints};
use crate::redis::error::OptionsError;
use crate::redis::node::QueueDepth;
use crate::redis::node::check_writes;
use crate::redis::options::RedisOptions;
use crate::redis::reserve::{self, Places, RouteError};
use crate::redis::script::{EncodedRequest, RequestReply};
use crate::redis::slot::slot_of_key;
use crate::redis::tasks::{TaskError, Tasks};

/// All nodes of a cluster as one store.
pub(super) struct Cluster {
    router: Arc<Router>,
    /// The refresh of the slot map, and the tasks of all nodes.
    tasks: Arc<Tasks>,
    /// Requests over several slots. They finish even if the caller is gone, so that no charge stays recorded by
    /// mistake.
    requests: Tasks,
}

impl Cluster {
    /// Starts to load the slot map. The nodes need not run yet.
    pub(super) fn start(options: &RedisOptions, observer: Arc<dyn Observer>) -> Result<Self, OptionsError> {
        let seeds = endpoints(options, &options.credentials)?;
        let endpoints = Endpoints::new(seeds).ok_or(OptionsError::NoUrl)?;
        let tasks = Arc::new(Tasks::new());
        let router = Router::new(options, endpoints, QueueDepth::new(observer), Arc::clone(&tasks));
        let router = Arc::new(router);
        tasks.spawn_loop("slot map refresh", router.closing(), refresh::run(Arc::clone(&router)));
        Ok(Self { router, tasks, requests: Tasks::new() })
    }

    /// Refuses further requests, answers those that wait, and ends all tasks.
    pub(super) fn close(&self) {
        self.router.close();
    }

    /// Closes the cluster after the requests over several slots have finished, and waits until all tasks have ended.
    pub(super) async fn shutdown(&self) -> Result<(), TaskError> {
        let finished = self.requests.join().await;
        self.close();
        self.tasks.join().await.and(finished)
    }

    /// Resolves when a background task has died; pending for ever otherwise.
    pub(super) fn died(&self) -> impl Future<Output = TaskError> + Send + use<> {
        self.tasks.died()
    }

    /// The addresses of the primaries known at present, and how to connect to them.
    pub(super) fn targets(&self) -> Vec<(Address, Target)> {
        self.router.targets()
    }

    /// The primaries known at present, and the states of their breakers.
    pub(super) fn nodes(&self) -> Vec<(String, BreakerState)> {
        let primaries = self.router.primaries();
        primaries.iter().map(|primary| (primary.address.to_string(), primary.node.breaker_state())).collect()
    }

    /// The failure that keeps the breaker of a primary open, if the breakers of all primaries are open.
    pub(super) fn breaker_cause(&self) -> Option<Arc<StoreError>> {
        let primaries = self.router.primaries();
        let causes: Option<Vec<_>> = primaries.iter().map(|primary| primary.node.breaker_cause()).collect();
        causes?.pop()
    }

    /// The connections for decisions that were opened since the start, to the primaries known at present.
    pub(super) fn connections_opened(&self) -> u64 {
        self.router.primaries().iter().map(|primary| primary.node.connections_opened()).sum()
    }

    /// Asks every primary for a decision on a counter of its own, and on a sliding log if one is needed. `timeout` is
    /// for each call.
    pub(super) async fn probe(&self, timeout: Duration, needs_log: bool) -> Result<(), StoreError> {
        self.router.owner(None, Instant::now() + timeout).await?;
        let call = |request| self.submit(request, Instant::now() + timeout);
        let slots = self.router.probe_slots();
        let key_prefix = self.router.key_prefix();
        let probes = slots.iter().map(|slot| check_writes(key_prefix, Some(*slot), needs_log, call));
        join_all(probes).await.into_iter().collect()
    }

    /// Sends a request with at most one key.
    pub(super) async fn submit(
        &self,
        request: EncodedRequest,
        deadline: Instant,
    ) -> Result<RequestReply, StoreError> {
        let slot = request.keys().next().map(slot_of_key);
        Ok(self.call(request, slot, deadline).await?)
    }

    /// Sends a request whose keys share this slot.
    pub(super) async fn call(
        &self,
        request: EncodedRequest,
        slot: Option<u16>,
        deadline: Instant,
    ) -> Result<RequestReply, RouteError> {
        self.router.call(request, slot, deadline).await
    }

    /// Decides a request. `request` is the encoding of `charges`.
    pub(super) async fn decide(
        &self,
        charges: &Charges,
        request: EncodedRequest,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        reserve::decide(&self.router, &self.requests, charges, request, deadline).await
    }
}
