//! Counters in Redis: every decision is one part of one script call.
//!
//! A caller's request is encoded (`codec`), waits in a bounded queue (`queue`), goes out with all others that wait
//! as one call (`batch`) of the one script (`script`) over one of a few connections (`pool`), and is reported on
//! by the engine's own functions from the numbers that come back. [`Timeline`] decides at times of the caller's
//! choosing. Redis's types stay in here.

mod batch;
mod codec;
mod guard;
mod meters;
mod options;
mod pace;
mod pool;
mod queue;
mod script;
mod timeline;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinError, JoinHandle};
use tokio::time::{Instant, timeout_at};

use self::batch::{Job, Shared};
use self::codec::{Answer, Encoded};
use self::guard::Guard;
use self::queue::{Queue, Refusal};
use crate::engine::{Charges, Forget, Outcomes, Store, StoreError};
use crate::store::breaker::BreakerState;

pub use meters::{Observer, Turn, Unobserved};
pub use options::{OptionsError, RedisOptions};
pub use timeline::{Moment, Timeline, TimelineError};

/// The Redis store of one worker. Clones share its queue, its batchers and its connections.
///
/// It lives on the runtime it was made in, best a current-thread one: its batchers and connections run there, and when the last
/// clone is dropped they answer what still waits and end. [`RedisStore::shutdown`] does the same and waits for it.
#[derive(Clone)]
pub struct RedisStore {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    key_prefix: String,
    batchers: Mutex<Vec<JoinHandle<()>>>,
    watcher: AbortHandle,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.queue.close();
        self.watcher.abort();
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("key_prefix", &self.handle.key_prefix)
            .field("timeout", &self.handle.shared.timeout)
            .finish_non_exhaustive()
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
    pub fn new(options: &RedisOptions, observer: Arc<dyn Observer>) -> Result<Self, OptionsError> {
        options.check()?;
        let shared = Arc::new(Shared {
            queue: Queue::new(options.max_queue),
            pool: pool::pool(options.client()?, options.connections),
            guard: Guard::new(options.breaker, Arc::clone(&observer)),
            pace: Mutex::default(),
            max_batch: options.max_batch,
            max_queue: options.max_queue,
            timeout: options.timeout,
            probe: guard::question(&options.key_prefix),
            observer,
        });
        let batchers =
            (0..options.connections).map(|_| tokio::spawn(batch::run(Arc::clone(&shared)))).collect();
        let watcher = tokio::spawn(guard::watch(Arc::clone(&shared))).abort_handle();
        let handle = Handle {
            shared,
            key_prefix: options.key_prefix.clone(),
            batchers: Mutex::new(batchers),
            watcher,
        };
        Ok(Self { handle: Arc::new(handle) })
    }

    /// Whether Redis answers in time, by the way that decisions take, script included. Decides nothing.
    ///
    /// # Errors
    /// What a decision would meet.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.submit(Encoded::default()).await.map(|_| ())
    }

    /// Refuses further decisions, answers those that wait, and returns when the batchers have ended.
    ///
    /// # Errors
    /// [`JoinError`] when one of them had died.
    pub async fn shutdown(&self) -> Result<(), JoinError> {
        self.handle.shared.queue.close();
        self.handle.watcher.abort();
        let batchers = std::mem::take(&mut *self.handle.batchers.lock());
        for batcher in batchers {
            batcher.await?;
        }
        Ok(())
    }

    /// Whether this worker asks Redis at present.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.handle.shared.guard.state()
    }

    async fn submit(&self, request: Encoded) -> Result<Answer, StoreError> {
        self.handle.shared.guard.admit()?;
        let (answer, answered) = oneshot::channel();
        let deadline = Instant::now() + self.handle.shared.timeout;
        let job = Job { request, deadline, answer };
        self.handle.shared.queue.push(job).map_err(|refusal| match refusal {
            Refusal::Full => StoreError::Overloaded,
            Refusal::Closed => ended(),
        })?;
        match timeout_at(deadline, answered).await {
            Ok(Ok(answer)) => answer,
            // A job is dropped unanswered when its deadline has passed, or with its batcher.
            Ok(Err(_)) if Instant::now() < deadline => Err(ended()),
            Ok(Err(_)) | Err(_) => Err(StoreError::Timeout),
        }
    }
}

fn ended() -> StoreError {
    StoreError::Unreachable("the store has been shut down".to_owned())
}

impl Forget for RedisStore {
    async fn forget(&self, charges: &Charges) -> Result<Vec<bool>, StoreError> {
        let mut forgotten = Vec::with_capacity(charges.each().len());
        for charge in charges.each() {
            let request = Encoded::forget(charges, charge, &self.handle.key_prefix);
            forgotten.push(self.submit(request).await?.forgotten()?);
        }
        Ok(forgotten)
    }
}

impl Store for RedisStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let request = Encoded::new(charges, &self.handle.key_prefix);
        self.submit(request).await?.outcomes(charges)
    }
}
