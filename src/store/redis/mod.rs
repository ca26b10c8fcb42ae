//! Counters in Redis: every decision is one part of one script call.
//!
//! A caller's request is encoded (`codec`) and waits on the node to its server (`node`) in a bounded queue (`queue`),
//! for as long as that server decides (`guard`) and no longer than makes sense (`pace`); it goes out with all others
//! that wait there as one call (`batch`) of the one script (`script`) over one of a few connections (`pool`), and is reported on by the engine's own functions from the numbers that come back. A standalone
//! server has one node, a cluster one for each primary (`cluster`). [`ReplayClient`] decides at times of the caller's
//! choosing. Redis's types stay in here.

mod address;
mod cluster;
mod connect;
mod error;
mod node;
mod observer;
mod options;
mod remote;
mod replay;
mod script;
mod server_info;
mod tasks;
mod url;

use std::fmt;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::task::JoinError;
use tokio::time::Instant;

use self::cluster::Cluster;
use self::connect::Target;
use self::node::{CallMode, Node};
use self::observer::QueueDepth;
use self::script::{Answer, Encoded};
use self::tasks::Tasks;
use crate::clock::Clock;
use crate::engine::{Charges, Outcomes, Reset, Store, StoreError};
use crate::store::breaker::BreakerState;

pub use error::OptionsError;
pub use observer::{BreakerTransition, NoopObserver, RedisObserver};
pub use options::{Credentials, Password, RedisOptions, SentinelOptions, TlsOptions, Topology};
pub use replay::{ReplayClient, ReplayClientError, TimedBatch};
pub use script::script_name;
pub use server_info::{Concern, ServerInfo, ServerVersion, Skew};
pub use url::{RedisUrl, RedisUrlError};

/// The Redis store of one worker. Clones share its queues, its batchers and its connections.
///
/// It lives on the runtime it was made in, best a current-thread one: its batchers and connections run there, and when the last
/// clone is dropped they answer what still waits and end. [`RedisStore::shutdown`] does the same and waits for it.
#[derive(Clone)]
pub struct RedisStore {
    handle: Arc<Handle>,
}

struct Handle {
    options: RedisOptions,
    servers: Servers,
}

enum Servers {
    One(Node, Tasks),
    Cluster(Arc<Cluster>),
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.servers.close();
    }
}

impl Servers {
    fn close(&self) {
        match self {
            Self::One(node, _) => node.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("options", &self.handle.options).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Starts the batchers on the current runtime. Redis need not be there yet: decisions fail until it is.
    ///
    /// # Errors
    /// [`OptionsError`] where the options cannot be meant.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(options: &RedisOptions, observer: Arc<dyn RedisObserver>) -> Result<Self, OptionsError> {
        options.check()?;
        let servers = match options.topology {
            Topology::Standalone | Topology::Sentinel(_) => {
                let tasks = Tasks::new();
                let node = Node::start(Target::new(options)?, options, QueueDepth::new(observer), &tasks);
                Servers::One(node, tasks)
            }
            Topology::Cluster => Servers::Cluster(Cluster::start(options, observer)?),
        };
        Ok(Self { handle: Arc::new(Handle { options: options.clone(), servers }) })
    }

    /// Whether Redis answers in time, by the way that decisions take, script included. Decides nothing. Of a cluster one
    /// primary is enough.
    ///
    /// # Errors
    /// What a decision would meet.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let deadline = self.deadline();
        match &self.handle.servers {
            Servers::One(node, _) => {
                node.call(Encoded::default(), CallMode::Batched(None), deadline).await?;
                Ok(())
            }
            Servers::Cluster(cluster) => cluster.ping(deadline).await,
        }
    }

    /// What the servers that decide say of themselves, each over a connection of its own: asks a few questions, decides
    /// nothing. One without an address where there is just one; in a cluster every primary that is known.
    pub async fn servers(&self, clock: &impl Clock) -> Vec<(String, Result<ServerInfo, StoreError>)> {
        let targets = match &self.handle.servers {
            Servers::One(node, _) => vec![(String::new(), node.target().clone())],
            Servers::Cluster(cluster) => {
                cluster.known().into_iter().map(|(address, target)| (address.to_string(), target)).collect()
            }
        };
        let asked = targets
            .into_iter()
            .map(async |(address, target)| (address, server_info::server_info(&target, clock).await));
        join_all(asked).await
    }

    /// Refuses further decisions, answers those that wait, and returns when the batchers have ended.
    ///
    /// # Errors
    /// [`JoinError`] when one of them had died.
    pub async fn shutdown(&self) -> Result<(), JoinError> {
        match &self.handle.servers {
            Servers::One(node, tasks) => {
                node.close();
                tasks.ended().await
            }
            Servers::Cluster(cluster) => cluster.shutdown().await,
        }
    }

    /// The servers that this worker asks, as they are known, and whether it asks them at present. A standalone server has
    /// no name here.
    #[must_use]
    pub fn nodes(&self) -> Vec<(String, BreakerState)> {
        match &self.handle.servers {
            Servers::One(node, _) => vec![(String::new(), node.breaker_state())],
            Servers::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Has a request decided whose keys share a slot.
    async fn submit(&self, request: Encoded) -> Result<Answer, StoreError> {
        let deadline = self.deadline();
        match &self.handle.servers {
            Servers::One(node, _) => Ok(node.call(request, CallMode::Batched(None), deadline).await?),
            Servers::Cluster(cluster) => cluster.submit(request, deadline).await,
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.handle.options.timeout
    }
}

impl Reset for RedisStore {
    async fn reset(&self, charges: &Charges) -> Result<Vec<bool>, StoreError> {
        let mut forgotten = Vec::with_capacity(charges.len());
        for key in charges.keys() {
            let request = Encoded::reset(key, &self.handle.options.key_prefix);
            forgotten.push(self.submit(request).await?.forgotten()?);
        }
        Ok(forgotten)
    }
}

impl Store for RedisStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let request = Encoded::new(charges, &self.handle.options.key_prefix);
        match &self.handle.servers {
            Servers::One(..) => self.submit(request).await?.outcomes(charges),
            Servers::Cluster(cluster) => cluster.decide(charges, request, self.deadline()).await,
        }
    }
}
