//! Counters in Redis: each request is decided by one script call, which it shares with other requests.
//!
//! A request is encoded (`script`) and queued at the node that has its keys; a batcher sends all queued requests as one
//! call and answers each from its part of the reply (`node`), over pooled connections (`connect`). The engine's own
//! functions then report on the numbers in the reply. A standalone server is one node, a cluster has a node for each
//! primary (`cluster`). [`ReplayClient`] decides at times that the caller chooses. Types of redis-rs stay in this
//! module.

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
mod slot;
mod tasks;
#[cfg(test)]
mod testing;
mod url;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tokio::time::Instant;

use self::cluster::Cluster;
use self::connect::Target;
use self::node::{CallMode, Node, check_writes};
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
pub use script::script_sha1;
pub use server_info::{Concern, ServerInfo, ServerVersion, Skew};
pub use tasks::TaskError;
pub use url::{RedisUrl, RedisUrlError};

/// The Redis store of one worker. Clones share its queues, batchers and connections.
///
/// Its tasks run on the runtime in which it was made, best a current-thread one. When the last clone is dropped,
/// waiting requests are answered and the tasks end; [`RedisStore::shutdown`] does the same and waits for the tasks.
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
    Cluster(Cluster),
}

impl Drop for Handle {
    fn drop(&mut self) {
        match &self.servers {
            Servers::One(node, _) => node.close(),
            Servers::Cluster(cluster) => cluster.close(),
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("options", &self.handle.options).finish_non_exhaustive()
    }
}

impl RedisStore {
    /// Starts the batchers on the current runtime. Redis need not run yet: decisions fail until it does.
    ///
    /// # Errors
    /// [`OptionsError`] if the options cannot be used.
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

    /// Has Redis decide on a counter of its own, `<prefix>probe...`, which it keeps for some seconds. So an error shows
    /// also that Redis cannot write: a replica, full memory, or missing permissions. In a cluster every primary must
    /// decide.
    ///
    /// # Errors
    /// The [`StoreError`] that a decision would return.
    pub async fn probe(&self) -> Result<(), StoreError> {
        let prefix = &self.handle.options.key_prefix;
        match &self.handle.servers {
            Servers::One(..) => check_writes(prefix, None, |request| self.submit(request)).await,
            Servers::Cluster(cluster) => cluster.probe(self.handle.options.timeout).await,
        }
    }

    /// What the servers report about themselves, each over a connection of its own. The address is empty for a
    /// standalone server; in a cluster there is an entry for each known primary.
    pub async fn servers(&self, clock: &impl Clock) -> Vec<(String, Result<ServerInfo, StoreError>)> {
        let targets = match &self.handle.servers {
            Servers::One(node, _) => vec![(String::new(), node.target().clone())],
            Servers::Cluster(cluster) => {
                cluster.targets().into_iter().map(|(address, target)| (address.to_string(), target)).collect()
            }
        };
        let infos = targets
            .into_iter()
            .map(async |(address, target)| (address, server_info::server_info(&target, clock).await));
        join_all(infos).await
    }

    /// Refuses further decisions, answers waiting requests, and returns when the tasks have ended.
    ///
    /// # Errors
    /// The first [`TaskError`], if any.
    pub async fn shutdown(&self) -> Result<(), TaskError> {
        match &self.handle.servers {
            Servers::One(node, tasks) => {
                node.close();
                tasks.join().await
            }
            Servers::Cluster(cluster) => cluster.shutdown().await,
        }
    }

    /// Resolves when a background task has panicked, or has ended before the store was closed: the store has then lost
    /// a part of its work, and the process should end. Pending for ever otherwise. Does not keep the store alive.
    pub fn died(&self) -> impl Future<Output = TaskError> + Send + use<> {
        match &self.handle.servers {
            Servers::One(_, tasks) => tasks.died().left_future(),
            Servers::Cluster(cluster) => cluster.died().right_future(),
        }
    }

    /// The servers that decide, as known at present, with the states of their breakers. The name is empty for a
    /// standalone server.
    #[must_use]
    pub fn nodes(&self) -> Vec<(String, BreakerState)> {
        match &self.handle.servers {
            Servers::One(node, _) => vec![(String::new(), node.breaker_state())],
            Servers::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Submits a request whose keys are all in one slot, and waits for its answer.
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
        let mut had_units = Vec::with_capacity(charges.len());
        for key in charges.keys() {
            let request = Encoded::reset(key, &self.handle.options.key_prefix);
            had_units.push(self.submit(request).await?.was_reset()?);
        }
        Ok(had_units)
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::testing::{FakeServer, PanickingObserver, Reply};
    use super::*;

    fn store(observer: impl RedisObserver) -> RedisStore {
        FakeServer::listen("redis.test", 6_379, |_| None);
        let urls = vec!["redis://redis.test:6379".parse().expect("a Redis URL")];
        let options = RedisOptions { urls, ..RedisOptions::default() };
        RedisStore::new(&options, Arc::new(observer)).expect("good options")
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_of_a_batcher_is_reported_at_once_and_by_shutdown() {
        let store = store(PanickingObserver::AtBatch);
        let (died, started) = (store.died(), Instant::now());
        store.probe().await.expect_err("its batcher panics");
        let panicked = TaskError::Panicked { task: "batcher", message: "a batch of 1".to_owned() };
        assert_eq!(died.await, panicked);
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert_eq!(store.shutdown().await, Err(panicked));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_closes_new_connections_is_asked_again_after_a_pause_and_the_store_can_stop() {
        let server = FakeServer::listen("redis.test", 6_379, |_| None);
        let tried = server.clone();
        server.handle(move |command| match command[0].as_str() {
            // After so many attempts in no time the test has failed; the silence ends it.
            "SCRIPT" if tried.connections() > 1_000 => Some(Reply::Silence),
            "SCRIPT" => Some(Reply::Last(Box::new(Reply::Bulk("hash".to_owned())))),
            _ => None,
        });
        let urls = vec!["redis://redis.test:6379".parse().expect("a Redis URL")];
        let options = RedisOptions { urls, breaker: None, ..RedisOptions::default() };
        let store = RedisStore::new(&options, Arc::new(NoopObserver)).expect("good options");
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(1) {
            store.probe().await.expect_err("no connection stays open");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // One attempt per batcher after each pause, which is at least 25 ms.
        assert!(server.connections() <= 100, "{} connections", server.connections());
        assert_eq!(store.shutdown().await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_dropped_or_closed_has_not_died() {
        let dropped = store(NoopObserver);
        dropped.probe().await.expect("an answer");
        let died = dropped.died();
        drop(dropped);
        timeout(Duration::from_secs(60), died).await.expect_err("it was dropped");
        let closed = store(NoopObserver);
        assert_eq!(closed.shutdown().await, Ok(()));
        timeout(Duration::from_secs(60), closed.died()).await.expect_err("it was closed");
    }
}
