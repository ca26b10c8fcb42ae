//! Keeps counters in Redis. One script call decides a whole batch of requests.
//!
//! A request is encoded (`script`) and queued at its node. A batcher of the node (`node`) sends the queue as one call
//! over a pooled connection (`connect`). `backends` chooses the servers, `cluster` the primary, and `reserve` splits
//! requests over several slots. Rows that are set at run time (`rows`) and lists of keys (`keys`) use a separate
//! connection. Entry point: [`RedisStore`]. Types of redis-rs stay in this module.

mod address;
mod backends;
mod cluster;
mod connect;
mod error;
mod keys;
mod marks;
mod node;
mod options;
mod plain_counters;
mod replay;
mod reserve;
mod row_puts;
mod rows;
mod script;
mod server_info;
mod slot;
mod tasks;
#[cfg(test)]
mod testing;
mod url;

use std::fmt;
use std::sync::Arc;

use engine::{Charge, Charges, Outcome, Outcomes, Reset, SHOWN_SLOTS, Store, StoreError};
use futures_util::future::join_all;

use self::backends::{Backends, Place};
use self::node::CallMode;
use self::rows::SideConnection;
use self::script::EncodedRequest;
use self::tasks::Tasks;
use crate::breaker::BreakerState;
use crate::observer::Observer;
use base::clock::SystemClock;

pub use backends::{BackendStatus, StoreFailure};
pub use error::OptionsError;
pub use options::{
    Credentials, HomeOptions, Password, RedisOptions, SentinelOptions, ServerOptions, Topology,
};
pub use plain_counters::PlainCounters;
pub use replay::{ReplayClient, ReplayClientError, TimedBatch};
pub use row_puts::{RowTotals, decide_puts};
pub use rows::{Instance, PutKind, PutResult, RowPut, RowsPage, StoredRow};
pub use script::{Script, script_sha1, scripts};
pub use server_info::{ServerDescription, ServerReport};
pub use tasks::TaskError;
pub use tls::ClientTls;
pub use url::{RedisUrl, RedisUrlError};

/// One worker's Redis store. Clones share its queues, batchers and connections.
///
/// Its tasks run on the runtime in which it was created, preferably a current-thread one. When the last clone is
/// dropped, waiting requests are answered and the tasks end; [`RedisStore::shutdown`] does the same and waits for the
/// tasks.
#[derive(Clone)]
pub struct RedisStore {
    handle: Arc<Handle>,
}

struct Handle {
    backends: Arc<Backends>,
    /// The batchers and everything that they need.
    tasks: Arc<Tasks>,
    /// Requests over several backends, or over several slots of one. They finish even if the caller is gone, so that no
    /// charge stays recorded by mistake.
    requests: Tasks,
    side_calls: SideConnection,
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
    /// Starts the batchers on the current runtime. Redis can start later: decisions fail until it does.
    ///
    /// # Errors
    /// [`OptionsError`] if the options are invalid.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(options: &RedisOptions, observer: Arc<dyn Observer>) -> Result<Self, OptionsError> {
        Self::with_observers(options, std::array::repeat(observer))
    }

    /// Like [`new`](Self::new). The second observer is for the servers of one-second limits, the third for those that
    /// all regions share.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn with_observers(
        options: &RedisOptions,
        observers: [Arc<dyn Observer>; 3],
    ) -> Result<Self, OptionsError> {
        options.check()?;
        let tasks = Arc::new(Tasks::new());
        let backends = Arc::new(Backends::start(options, observers, &tasks)?);
        Ok(Self {
            handle: Arc::new(Handle {
                backends,
                tasks,
                requests: Tasks::new(),
                side_calls: SideConnection::default(),
            }),
        })
    }

    /// Has Redis decide a charge to the counter `<prefix>probe...`, which expires after some seconds. The error
    /// therefore also reveals a server that cannot write: a replica, full memory, or missing permissions. In a cluster
    /// every primary must decide.
    ///
    /// # Errors
    /// The [`StoreError`] that a decision would return.
    pub async fn probe(&self) -> Result<(), StoreError> {
        self.probe_backends(false).await.map_err(|failure| failure.error)
    }

    /// Like [`probe`](Self::probe). If `needs_log`, the servers must also keep a sliding log, which can need additional
    /// permissions.
    ///
    /// # Errors
    /// The backends that cannot decide, with the error that a decision would return.
    pub async fn probe_backends(&self, needs_log: bool) -> Result<(), StoreFailure> {
        self.handle.backends.probe(needs_log).await
    }

    /// Returns what the servers report about themselves, as text for operators, each over its own connection. Named as
    /// in [`nodes`](Self::nodes).
    pub async fn describe_servers(&self) -> Vec<ServerReport> {
        let nodes = self.handle.backends.nodes();
        let reports = nodes.iter().map(async |node| {
            let description = server_info::describe(node.target(), &SystemClock).await;
            ServerReport { address: node.name().to_owned(), description }
        });
        join_all(reports).await
    }

    /// Refuses new decisions, answers waiting requests, and returns when the tasks have ended.
    ///
    /// # Errors
    /// The first [`TaskError`], if any.
    pub async fn shutdown(&self) -> Result<(), TaskError> {
        let finished = self.handle.requests.join().await;
        self.handle.backends.close();
        self.handle.tasks.join().await.and(finished)
    }

    /// Starts a task that calls this store and ends by itself. [`shutdown`](Self::shutdown) waits for it before it
    /// closes the connections.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.requests.spawn(name, task);
    }

    /// Resolves when a background task has panicked, or has ended before the store was closed: the store then works
    /// only in part, and the process should exit. Otherwise pending forever. Does not keep the store alive.
    pub fn died(&self) -> impl Future<Output = TaskError> + Send + use<> {
        self.handle.tasks.died()
    }

    /// The servers known now, with the states of their breakers. A standalone server has an empty name, a cluster
    /// primary its address. Servers of the other groups start with `per_second` or `home`.
    pub fn nodes(&self) -> Vec<(String, BreakerState)> {
        let nodes = self.handle.backends.nodes();
        nodes.iter().map(|node| (node.name().to_owned(), node.breaker_state())).collect()
    }

    /// One entry per backend; it has a failure if all its breakers are open.
    pub fn backends(&self) -> Vec<BackendStatus> {
        self.handle.backends.status()
    }

    /// Connections for decisions opened since startup. A new one can reach a restarted server.
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
            had_units.push(backends.call(request, place, backends.deadline(place)).await?.was_reset()?);
        }
        Ok(had_units)
    }

    async fn replace(&self, key: &str, charge: &Charge) -> Result<Outcome, StoreError> {
        let backends = &self.handle.backends;
        let request = EncodedRequest::replace(key, charge, &backends.options.key_prefix);
        let place = backends.place(charge, request.keys().next().unwrap_or_default());
        backends.call(request, place, backends.deadline(place)).await?.replaced(charge)
    }

    async fn slot_ends(&self, key: &str, now_us: u64) -> Result<Vec<u64>, StoreError> {
        let keys = [format!("{}{key}", self.handle.backends.options.key_prefix)];
        let command = |_| {
            let mut range = redis::cmd("ZRANGEBYSCORE");
            range.arg(&keys[0]).arg(format!("({now_us}")).arg("+inf").arg("WITHSCORES");
            range.arg("LIMIT").arg(0).arg(SHOWN_SLOTS);
            range
        };
        let slots: Vec<(String, u64)> = self.side_call(&keys, &command).await?;
        Ok(slots.into_iter().map(|(_, end_us)| end_us).collect())
    }
}

impl Store for RedisStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let Handle { backends, requests, .. } = &*self.handle;
        let request = EncodedRequest::new(charges, &backends.options.key_prefix);
        if let Some(node) = backends.only_node() {
            let deadline = backends.deadline(Place::default());
            return node.call(request, CallMode::Batched(None), deadline).await?.outcomes(charges);
        }
        // Boxed because it is five times as large as the future above, and every decision would have its size.
        Box::pin(reserve::decide(backends, requests, charges, request)).await
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
            // After this many attempts without a pause the test has failed; the silence ends it.
            "SCRIPT" if tried.connections() > 1_000 => Some(Reply::Silence),
            "SCRIPT" => Some(Reply::Last(Box::new(Reply::Bulk("hash".to_owned())))),
            _ => None,
        });
        let urls = vec!["redis://redis.test:6379".parse().expect("a Redis URL")];
        // No window has 20 attempts, and failures are never consecutive enough: the breaker stays closed.
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
