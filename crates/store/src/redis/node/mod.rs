//! A node is one Redis server: the only server, or a primary of a cluster.
//!
//! A request waits in the node's bounded `queue`; a `batcher` sends the waiting requests as one script call (`calls`).
//! `shared_breaker` cuts off a dead server until a `probe` succeeds, and `queue_control` sheds load. Nodes do not wait
//! for each other.

mod batcher;
mod calls;
mod probe;
mod queue;
mod queue_control;
mod shared_breaker;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::StoreError;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use self::calls::QueuedRequest;
pub(crate) use self::calls::{CallError, CallMode, Cause, NotExecuted};
pub(crate) use self::probe::check_writes;
use self::queue::Queue;
pub(crate) use self::queue::QueueDepth;
use self::queue_control::QueueControl;
use self::shared_breaker::SharedBreaker;
use self::state::NodeState;
use crate::breaker::BreakerState;
use crate::redis::connect::{Target, connection_pool};
use crate::redis::error::ended_without_answer;
use crate::redis::options::{RedisOptions, Topology};
use crate::redis::script::{EncodedRequest, RequestReply};
use crate::redis::tasks::Tasks;

/// Times that a call yields to the other tasks after its deadline: the task that reads the socket has to run, and then
/// the batcher. Two more are a reserve.
const YIELDS_FOR_ANSWER: usize = 4;

/// A client of one server. Dropping it answers waiting requests and ends its tasks.
pub(crate) struct Node {
    state: Arc<NodeState>,
    closing: CancellationToken,
}

impl Node {
    /// Starts the batchers and the probe. The server can start later. `name`: the one in
    /// [`RedisStore::nodes`](super::RedisStore::nodes).
    pub(crate) fn start(
        name: String,
        target: Target,
        options: &RedisOptions,
        queue_depth: QueueDepth,
        tasks: &Tasks,
    ) -> Self {
        let closing = CancellationToken::new();
        let watch = target.watch();
        let connections_opened = Arc::default();
        let observer = Arc::clone(&queue_depth.observer);
        let state = Arc::new(NodeState {
            pool: connection_pool(target.clone(), options.connections, Arc::clone(&connections_opened)),
            connections_opened,
            target,
            queue: Queue::new(options.max_queue),
            breaker: SharedBreaker::new(name, options.breaker, Arc::clone(&observer)),
            queue_control: Mutex::new(QueueControl::new(options.timeout)),
            is_hot: AtomicBool::new(false),
            logs_apart: AtomicBool::new(false),
            key_prefix: options.key_prefix.clone(),
            probe_slot: Mutex::new(None),
            probe_mode: match options.topology {
                Topology::Standalone | Topology::Sentinel(_) => CallMode::Batched(None),
                Topology::Cluster => CallMode::Single,
            },
            observer,
            queue_depth,
            max_batch: options.max_batch,
            max_queue: options.max_queue,
            timeout: options.timeout,
        });
        for _ in 0..options.connections {
            tasks.spawn_until_closed("batcher", &closing, batcher::run(Arc::clone(&state)));
        }
        tasks.spawn_loop("breaker probe", &closing, probe::run(Arc::clone(&state)));
        if let Some(watch) = watch {
            tasks.spawn_loop("sentinel watch", &closing, watch);
        }
        Self { state, closing }
    }

    pub(crate) fn name(&self) -> &str {
        &self.state.breaker.node
    }

    pub(crate) fn target(&self) -> &Target {
        &self.state.target
    }

    /// Queues a request, and waits for its answer until `deadline`.
    pub(crate) async fn call(
        &self,
        request: EncodedRequest,
        mode: CallMode,
        deadline: Instant,
    ) -> Result<RequestReply, CallError> {
        if let Err(open) = self.state.breaker.admit() {
            return Err(CallError::not_sent(request, open));
        }
        let (reply, mut answer) = oneshot::channel();
        let queued = QueuedRequest { encoded: request, mode, deadline, reply };
        self.state.push(queued)?;
        match timeout_at(deadline, &mut answer).await {
            Ok(Ok(answer)) => answer,
            // A queued request is dropped without an answer after its deadline, or if its batcher panics.
            Ok(Err(_)) if Instant::now() < deadline => Err(CallError::Failed(ended_without_answer())),
            Ok(Err(_)) => Err(CallError::Failed(StoreError::Timeout)),
            Err(_) => unread_answer(&mut answer).await.unwrap_or(Err(CallError::Failed(StoreError::Timeout))),
        }
    }

    /// Refuses new requests, answers waiting ones, and ends the tasks.
    pub(crate) fn close(&self) {
        // The order matters: a batcher that ends before the cancellation counts as dead.
        self.closing.cancel();
        self.state.queue.close();
    }

    /// Closes a node that left the cluster, and reports its breaker as closed.
    pub(crate) fn retire(&self) {
        self.close();
        self.state.breaker.retire();
    }

    pub(crate) fn set_probe_slot(&self, slot: u16) {
        *self.state.probe_slot.lock() = Some(slot);
    }

    pub(crate) fn breaker_state(&self) -> BreakerState {
        self.state.breaker.state()
    }

    /// The failure that keeps the breaker open; `None` while it is closed.
    pub(crate) fn breaker_cause(&self) -> Option<Arc<StoreError>> {
        self.state.breaker.cause()
    }

    /// Connections opened since startup.
    pub(crate) fn connections_opened(&self) -> u64 {
        self.state.connections_opened.load(Ordering::Relaxed)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.close();
    }
}

/// Reads a call's answer after its deadline, if it has arrived. If the system does not schedule a worker for a while,
/// its calls' deadlines pass before it reads their answers.
async fn unread_answer(
    answer: &mut oneshot::Receiver<Result<RequestReply, CallError>>,
) -> Option<Result<RequestReply, CallError>> {
    for _ in 0..YIELDS_FOR_ANSWER {
        yield_now().await;
        if let Ok(answer) = answer.try_recv() {
            return Some(answer);
        }
    }
    None
}
