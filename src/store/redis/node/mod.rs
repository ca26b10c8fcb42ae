//! The way to one server: a bounded queue, the batchers that empty it, and their connections. What happens on one lane
//! keeps nobody waiting on another.

mod admission;
mod batcher;
mod calls;
mod gate;
mod job;
mod probe;
mod queue;
mod state;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use self::gate::BreakerGate;
use self::job::Job;
pub(crate) use self::job::{CallError, CallMode, Cause, NotExecuted};
pub(crate) use self::probe::probe_request;
use self::queue::{Queue, Refusal};
use self::state::{Calls, NodeState};
use crate::engine::StoreError;
use crate::store::breaker::BreakerState;
use crate::store::redis::connect::{Target, connection_pool};
use crate::store::redis::error::shut_down;
use crate::store::redis::observer::QueueDepth;
use crate::store::redis::options::RedisOptions;
use crate::store::redis::script::{Answer, Encoded};
use crate::store::redis::tasks::Tasks;

/// The way to one server. When it is dropped, what still waits is answered and the batchers end.
pub(crate) struct Node {
    shared: Arc<NodeState>,
    closing: CancellationToken,
}

impl Node {
    /// Starts the batchers. The server need not be there yet.
    pub(crate) fn start(
        target: Target,
        options: &RedisOptions,
        queue_depth: QueueDepth,
        tasks: &Tasks,
    ) -> Self {
        let shared = Arc::new(NodeState {
            queue: Queue::new(options.max_queue),
            pool: connection_pool(target.clone(), options.connections),
            target,
            gate: BreakerGate::new(options.breaker, Arc::clone(queue_depth.observer())),
            pace: Mutex::default(),
            max_batch: options.max_batch,
            max_queue: options.max_queue,
            timeout: options.timeout,
            probe: Mutex::new(probe_request(&options.key_prefix, None)),
            calls: Calls::for_topology(&options.topology),
            queue_depth,
        });
        for _ in 0..options.connections {
            tasks.spawn(batcher::run(Arc::clone(&shared)));
        }
        let closing = CancellationToken::new();
        let probing = closing.clone().run_until_cancelled_owned(probe::watch(Arc::clone(&shared)));
        tasks.spawn(async move {
            // It ends only where there is no breaker to watch.
            probing.await;
        });
        let watched = Arc::clone(&shared);
        let watching = closing.clone().run_until_cancelled_owned(async move { watched.target.watch().await });
        tasks.spawn(async move {
            // It ends only where the way is always the same.
            watching.await;
        });
        Self { shared, closing }
    }

    /// How the server is reached.
    pub(crate) fn target(&self) -> &Target {
        &self.shared.target
    }

    /// Waits for the answer to a request, until `deadline`.
    pub(crate) async fn call(
        &self,
        request: Encoded,
        mode: CallMode,
        deadline: Instant,
    ) -> Result<Answer, CallError> {
        if let Err(open) = self.shared.gate.admit() {
            return Err(CallError::not_sent(request, open));
        }
        let (answer, answered) = oneshot::channel();
        let job = Job { request, mode, deadline, answer };
        if let Err((refusal, job)) = self.shared.queue.push(job) {
            return Err(match refusal {
                Refusal::Full => CallError::Failed(StoreError::Overloaded),
                Refusal::Closed => CallError::not_sent(job.request, shut_down()),
            });
        }
        match timeout_at(deadline, answered).await {
            Ok(Ok(answer)) => answer,
            // A job is dropped unanswered when its deadline has passed, or with its batcher.
            Ok(Err(_)) if Instant::now() < deadline => Err(CallError::Failed(shut_down())),
            Ok(Err(_)) | Err(_) => Err(CallError::Failed(StoreError::Timeout)),
        }
    }

    /// Refuses what comes, answers what waits, and ends the batchers.
    pub(crate) fn close(&self) {
        self.shared.queue.close();
        self.closing.cancel();
    }

    /// The same for a server that is not to be asked any more by anyone.
    pub(crate) fn retire(&self) {
        self.close();
        self.shared.gate.retire();
    }

    /// What the server is to be asked to decide when it is not known whether it does.
    pub(crate) fn set_probe(&self, question: Encoded) {
        *self.shared.probe.lock() = question;
    }

    /// Whether the server is asked at present.
    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.shared.gate.state()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.close();
    }
}
