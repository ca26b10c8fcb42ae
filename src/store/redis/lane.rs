//! The way to one server: a bounded queue, the batchers that empty it, and their connections. What happens on one lane
//! keeps nobody waiting on another.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::batch::{self, Calls, Job, Shared};
use super::codec::{Answer, Encoded};
use super::guard::{self, Guard};
use super::meters::Gauge;
use super::options::RedisOptions;
use super::pool;
use super::queue::{Queue, Refusal};
use super::sentinel::Way;
use super::setback::Setback;
use super::tasks::Tasks;
use crate::engine::StoreError;
use crate::store::breaker::BreakerState;

/// The way to one server. When it is dropped, what still waits is answered and the batchers end.
pub(super) struct Lane {
    shared: Arc<Shared>,
    closing: CancellationToken,
}

impl Lane {
    /// Starts the batchers. The server need not be there yet.
    pub(super) fn open(way: Way, options: &RedisOptions, gauge: Gauge, tasks: &Tasks) -> Self {
        let shared = Arc::new(Shared {
            queue: Queue::new(options.max_queue),
            pool: pool::pool(way.clone(), options.connections),
            way,
            guard: Guard::new(options.breaker, Arc::clone(gauge.observer())),
            pace: Mutex::default(),
            max_batch: options.max_batch,
            max_queue: options.max_queue,
            timeout: options.timeout,
            probe: Mutex::new(guard::question(&options.key_prefix, None)),
            calls: Calls::of(&options.topology),
            gauge,
        });
        for _ in 0..options.connections {
            tasks.spawn(batch::run(Arc::clone(&shared)));
        }
        let closing = CancellationToken::new();
        let guarding = closing.clone().run_until_cancelled_owned(guard::watch(Arc::clone(&shared)));
        tasks.spawn(async move {
            // It ends only where there is no breaker to watch.
            guarding.await;
        });
        let watched = Arc::clone(&shared);
        let watching = closing.clone().run_until_cancelled_owned(async move { watched.way.watch().await });
        tasks.spawn(async move {
            // It ends only where the way is always the same.
            watching.await;
        });
        Self { shared, closing }
    }

    /// How the server is reached.
    pub(super) fn way(&self) -> &Way {
        &self.shared.way
    }

    /// Waits for the answer to a request, until `deadline`.
    pub(super) async fn ask(
        &self,
        request: Encoded,
        manner: batch::Manner,
        deadline: Instant,
    ) -> Result<Answer, Setback> {
        if let Err(open) = self.shared.guard.admit() {
            return Err(Setback::unsent(request, open));
        }
        let (answer, answered) = oneshot::channel();
        let job = Job { request, manner, deadline, answer };
        if let Err((refusal, job)) = self.shared.queue.push(job) {
            return Err(match refusal {
                Refusal::Full => Setback::Failed(StoreError::Overloaded),
                Refusal::Closed => Setback::unsent(job.request, ended()),
            });
        }
        match timeout_at(deadline, answered).await {
            Ok(Ok(answer)) => answer,
            // A job is dropped unanswered when its deadline has passed, or with its batcher.
            Ok(Err(_)) if Instant::now() < deadline => Err(Setback::Failed(ended())),
            Ok(Err(_)) | Err(_) => Err(Setback::Failed(StoreError::Timeout)),
        }
    }

    /// Refuses what comes, answers what waits, and ends the batchers.
    pub(super) fn close(&self) {
        self.shared.queue.close();
        self.closing.cancel();
    }

    /// The same for a server that is not to be asked any more by anyone.
    pub(super) fn retire(&self) {
        self.close();
        self.shared.guard.retire();
    }

    /// What the server is to be asked to decide when it is not known whether it does.
    pub(super) fn probe_with(&self, question: Encoded) {
        *self.shared.probe.lock() = question;
    }

    /// Whether the server is asked at present.
    pub(super) fn breaker(&self) -> BreakerState {
        self.shared.guard.state()
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.close();
    }
}

pub(super) fn ended() -> StoreError {
    StoreError::Unreachable("the store has been shut down".to_owned())
}
