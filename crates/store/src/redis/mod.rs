//! Counters in Redis: each request is decided by one script call, which it shares with other requests.
//!
//! A request is encoded (`script`) and queued at the node that has its keys. A node is one Redis server, as a client
//! sees it. A batcher of the node sends all queued requests as one call over a pooled connection (`connect`), and
//! answers each from its part of the reply (`node`). The engine's own functions then compute the reports from the
//! numbers in the reply. With one standalone server that is all.
//!
//! Other topologies have one door, `backends`: counters of limits of one second may have a backend of their own, and
//! each backend is a single server or a cluster with a node for each primary (`cluster`). A request over several slots
//! or backends is decided in parts (`reserve`). Sentinels only choose where connections lead
//! (`connect/sentinel`). [`ReplayClient`] decides at times that the caller chooses. Types of redis-rs stay in this
//! module.

mod address;
mod backends;
mod cluster;
mod connect;
mod error;
mod node;
mod options;
mod replay;
mod reserve;
mod script;
mod server_info;
mod slot;
mod tasks;
#[cfg(test)]
mod testing;
mod url;

use std::fmt;
use std::sync::Arc;

use engine::{Charges, Outcomes, Reset, Store, StoreError};
use futures_util::future::join_all;

use self::backends::Backends;
use self::node::CallMode;
use self::script::EncodedRequest;
use self::tasks::Tasks;
use crate::breaker::BreakerState;
use crate::observer::Observer;
use base::clock::SystemClock;

pub use backends::{BackendStatus, StoreFailure};
pub use error::OptionsError;
pub use options::{Credentials, Password, RedisOptions, SentinelOptions, ServerOptions, Topology};
pub use replay::{ReplayClient, ReplayClientError, TimedBatch};
pub use script::{Script, script_sha1, scripts};
pub use server_info::{ServerDescription, ServerReport};
pub use tasks::TaskError;
pub use tls::ClientTls;
pub use url::{RedisUrl, RedisUrlError};

/// The Redis store of one worker. Clones share its queues, batchers and connections.
///
/// Its tasks run on the runtime in which it was made, preferably a current-thread one. When the last clone is dropped,
/// waiting requests are answered and the tasks end; [`RedisStore::shutdown`] does the same and waits for the tasks.
#[derive(Clone)]
pub struct RedisStore {
    handle: Arc<Handle>,
}

struct Handle {
    backends: Arc<Backends>,
    /// The batchers and all that they need.
    tasks: Arc<Tasks>,
    /// Requests over both backends, or over several slots of one. They finish even if the caller is gone, so that no
    /// charge stays recorded by mistake.
    requests: Tasks,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.backends.close();
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("options", &self.handle.backends.options).finish_non_exhaustive()
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
    pub fn new(options: &RedisOptions, observer: Arc<dyn Observer>) -> Result<Self, OptionsError> {
        Self::with_observers(options, [Arc::clone(&observer), observer])
    }

    /// Like [`new`](Self::new). The second observer gets the events of the servers for limits of one second.
    ///
    /// # Errors
    /// The same as those of [`new`](Self::new).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_observers(
        options: &RedisOptions,
        observers: [Arc<dyn Observer>; 2],
    ) -> Result<Self, OptionsError> {
        options.check()?;
        let tasks = Arc::new(Tasks::new());
        let backends = Arc::new(Backends::start(options, observers, &tasks)?);
        Ok(Self { handle: Arc::new(Handle { backends, tasks, requests: Tasks::new() }) })
    }

    /// Asks Redis for a decision on a counter of its own, `<prefix>probe...`, which expires after some seconds. So the
    /// error also tells when Redis cannot write: a replica, full memory, or missing permissions. In a cluster every
    /// primary must decide.
    ///
    /// # Errors
    /// The [`StoreError`] that a decision would return.
    pub async fn probe(&self) -> Result<(), StoreError> {
        self.probe_backends(false).await.map_err(|failure| failure.error)
    }

    /// Like [`probe`](Self::probe). `needs_log`: whether the servers must also keep a sliding log, for which they may
    /// need further permissions.
    ///
    /// # Errors
    /// The backends that do not decide, with the error that a decision would return.
    pub async fn probe_backends(&self, needs_log: bool) -> Result<(), StoreFailure> {
        self.handle.backends.probe(needs_log).await
    }

    /// What the servers report about themselves, as text for operators, each over a connection of its own. The names
    /// are those of [`nodes`](Self::nodes).
    pub async fn describe_servers(&self) -> Vec<ServerReport> {
        let nodes = self.handle.backends.nodes();
        let reports = nodes.iter().map(async |node| {
            let description = server_info::describe(node.target(), &SystemClock).await;
            ServerReport { address: node.name().to_owned(), description }
        });
        join_all(reports).await
    }

    /// Refuses further decisions, answers waiting requests, and returns when the tasks have ended.
    ///
    /// # Errors
    /// The first [`TaskError`], if any.
    pub async fn shutdown(&self) -> Result<(), TaskError> {
        let finished = self.handle.requests.join().await;
        self.handle.backends.close();
        self.handle.tasks.join().await.and(finished)
    }

    /// Resolves when a background task has panicked, or has ended before the store was closed: the store has then lost
    /// a part of its work, and the process should end. Otherwise it is pending for ever. It does not keep the store
    /// alive.
    pub fn died(&self) -> impl Future<Output = TaskError> + Send + use<> {
        self.handle.tasks.died()
    }

    /// The servers that decide, as known at present, with the states of their breakers. A standalone server has an
    /// empty name, a primary of a cluster its address. The servers for limits of one second have `per_second` before
    /// that.
    #[must_use]
    pub fn nodes(&self) -> Vec<(String, BreakerState)> {
        let nodes = self.handle.backends.nodes();
        nodes.iter().map(|node| (node.name().to_owned(), node.breaker_state())).collect()
    }

    /// One entry for each backend: whether the breakers of all its servers are open.
    #[must_use]
    pub fn backends(&self) -> Vec<BackendStatus> {
        self.handle.backends.status()
    }

    /// The connections for decisions that were opened since the start. A new connection may reach a server that was
    /// restarted.
    #[must_use]
    pub fn connections_opened(&self) -> u64 {
        self.handle.backends.nodes().iter().map(|node| node.connections_opened()).sum()
    }
}

impl Reset for RedisStore {
    async fn reset(&self, charges: &Charges) -> Result<Vec<bool>, StoreError> {
        let backends = &self.handle.backends;
        let mut had_units = Vec::with_capacity(charges.len());
        for (key, charge) in charges.iter() {
            let request = EncodedRequest::reset(key, &backends.options.key_prefix);
            let place = backends.place(charge, request.keys().next().unwrap_or_default());
            had_units.push(backends.call(request, place, backends.deadline()).await?.was_reset()?);
        }
        Ok(had_units)
    }
}

impl Store for RedisStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let Handle { backends, requests, .. } = &*self.handle;
        let request = EncodedRequest::new(charges, &backends.options.key_prefix);
        let deadline = backends.deadline();
        if let Some(node) = backends.only_node() {
            return node.call(request, CallMode::Batched(None), deadline).await?.outcomes(charges);
        }
        // This future is boxed: it is five times as large as the one above, and every decision would have its size.
        Box::pin(reserve::decide(backends, requests, charges, request, deadline)).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, timeout};

    use super::testing::{FakeServer, PanickingObserver, Reply};
    use super::*;
    use crate::breaker::BreakerOptions;
    use crate::observer::NoopObserver;

    fn store(observer: impl Observer) -> RedisStore {
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
            // After this many attempts in no time the test has failed; the silence ends it.
            "SCRIPT" if tried.connections() > 1_000 => Some(Reply::Silence),
            "SCRIPT" => Some(Reply::Last(Box::new(Reply::Bulk("hash".to_owned())))),
            _ => None,
        });
        let urls = vec!["redis://redis.test:6379".parse().expect("a Redis URL")];
        // No window has 20 attempts, and no row this many: the breaker stays closed.
        let breaker = BreakerOptions {
            failures: u32::MAX,
            window: Duration::from_micros(10),
            ..BreakerOptions::default()
        };
        let options = RedisOptions { urls, breaker, ..RedisOptions::default() };
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
