//! A Redis backend: a single server, perhaps behind sentinels, or a cluster. The rest of the store need not know which.

use std::future::Future;
use std::sync::Arc;

use engine::StoreError;
use futures_util::FutureExt;
use tokio::time::Instant;

use super::cluster::Cluster;
use super::connect::Target;
use super::error::OptionsError;
use super::node::{CallMode, Node, QueueDepth, check_writes};
use super::options::{RedisOptions, Topology};
use super::reserve::RouteError;
use super::script::{EncodedRequest, RequestReply};
use super::tasks::{TaskError, Tasks};
use crate::breaker::BreakerState;
use crate::observer::Observer;

/// What the URLs of the settings lead to.
pub(super) enum Backend {
    One(Node, Tasks),
    Cluster(Cluster),
}

impl Backend {
    /// Starts the batchers on the current runtime. The servers need not run yet.
    pub(super) fn start(options: &RedisOptions, observer: Arc<dyn Observer>) -> Result<Self, OptionsError> {
        Ok(match options.topology {
            Topology::Standalone | Topology::Sentinel(_) => {
                let tasks = Tasks::new();
                let target = Target::new(options)?;
                let node = Node::start(String::new(), target, options, QueueDepth::new(observer), &tasks);
                Self::One(node, tasks)
            }
            Topology::Cluster => Self::Cluster(Cluster::start(options, observer)?),
        })
    }

    /// Asks every server for a decision on a counter of its own, and on a sliding log if one is needed.
    pub(super) async fn probe(&self, options: &RedisOptions, needs_log: bool) -> Result<(), StoreError> {
        match self {
            Self::One(node, _) => {
                let call = async |request| {
                    let deadline = Instant::now() + options.timeout;
                    Ok(node.call(request, CallMode::Batched(None), deadline).await?)
                };
                check_writes(&options.key_prefix, None, needs_log, call).await
            }
            Self::Cluster(cluster) => cluster.probe(options.timeout, needs_log).await,
        }
    }

    /// Sends a request whose keys are in this slot; a single server has no slots.
    pub(super) async fn call(
        &self,
        request: EncodedRequest,
        slot: Option<u16>,
        deadline: Instant,
    ) -> Result<RequestReply, RouteError> {
        match self {
            Self::One(node, _) => {
                let answer = node.call(request, CallMode::Batched(None), deadline).await;
                Ok(answer.map_err(StoreError::from)?)
            }
            Self::Cluster(cluster) => cluster.call(request, slot, deadline).await,
        }
    }

    /// Sends a request with at most one key.
    pub(super) async fn submit(
        &self,
        request: EncodedRequest,
        deadline: Instant,
    ) -> Result<RequestReply, StoreError> {
        match self {
            Self::One(node, _) => Ok(node.call(request, CallMode::Batched(None), deadline).await?),
            Self::Cluster(cluster) => cluster.submit(request, deadline).await,
        }
    }

    /// The servers known at present, and how to connect to them. The name is empty for a single server.
    pub(super) fn targets(&self) -> Vec<(String, Target)> {
        match self {
            Self::One(node, _) => vec![(String::new(), node.target().clone())],
            Self::Cluster(cluster) => {
                cluster.targets().into_iter().map(|(address, target)| (address.to_string(), target)).collect()
            }
        }
    }

    /// The servers known at present, and the states of their breakers. The name is empty for a single server.
    pub(super) fn nodes(&self) -> Vec<(String, BreakerState)> {
        match self {
            Self::One(node, _) => vec![(String::new(), node.breaker_state())],
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Why no server decides: the failure that keeps a breaker open, if every server's breaker is open.
    pub(super) fn breaker_cause(&self) -> Option<Arc<StoreError>> {
        match self {
            Self::One(node, _) => node.breaker_cause(),
            Self::Cluster(cluster) => cluster.breaker_cause(),
        }
    }

    /// The connections for decisions that were opened since the start, to the servers known at present.
    pub(super) fn connections_opened(&self) -> u64 {
        match self {
            Self::One(node, _) => node.connections_opened(),
            Self::Cluster(cluster) => cluster.connections_opened(),
        }
    }

    /// Refuses further requests, and answers those that wait.
    pub(super) fn close(&self) {
        match self {
            Self::One(node, _) => node.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }

    /// Closes the servers, and returns when the tasks have ended.
    pub(super) async fn shutdown(&self) -> Result<(), TaskError> {
        match self {
            Self::One(node, tasks) => {
                node.close();
                tasks.join().await
            }
            Self::Cluster(cluster) => cluster.shutdown().await,
        }
    }

    /// Resolves when a background task has died; pending for ever otherwise.
    pub(super) fn died(&self) -> impl Future<Output = TaskError> + Send + use<> {
        match self {
            Self::One(_, tasks) => tasks.died().left_future(),
            Self::Cluster(cluster) => cluster.died().right_future(),
        }
    }
}
