//! A node is one Redis server, as a client sees it: the only server, or a primary of a cluster.
//!
//! A request waits in the bounded queue of its node (`queue`). A batcher takes the waiting requests and sends them
//! together (`batcher`), as one script call (`calls`). Beside this road are the breaker (`shared_breaker`) with its
//! probe (`probe`), and the control of the queue under overload (`queue_control`). The nodes of a cluster do not wait
//! for each other. A worker bounds the decisions of all its nodes together.

mod batcher;
mod calls;
mod linger;
mod probe;
mod queue;
mod queue_control;
mod shared_breaker;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use engine::StoreError;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

pub(crate) use self::calls::{CallError, CallMode, Cause, NotExecuted};
use self::calls::{QueuedRequest, fail_unsent};
use self::linger::Linger;
pub(crate) use self::probe::check_writes;
pub(crate) use self::queue::QueueDepth;
use self::queue::{Queue, Refusal};
use self::queue_control::QueueControl;
use self::shared_breaker::SharedBreaker;
use crate::breaker::BreakerState;
use crate::observer::Observer;
use crate::redis::connect::{ConnectionPool, Target, connection_pool};
use crate::redis::error::{ended_without_answer, shut_down};
use crate::redis::options::{RedisOptions, Topology};
use crate::redis::script::{EncodedRequest, RequestReply};
use crate::redis::tasks::Tasks;

/// After its deadline a call yields to the other tasks this many times: the task that reads the socket has to run, and
/// then the batcher. Two more are a reserve.
const YIELDS_FOR_ANSWER: usize = 4;

/// A client of one server. When it is dropped, waiting requests are answered and its tasks end.
pub(crate) struct Node {
    state: Arc<NodeState>,
    closing: CancellationToken,
}

/// What the callers, the batchers and the probe of a node share.
struct NodeState {
    target: Target,
    pool: ConnectionPool,
    /// The connections that the pool has opened.
    connections_opened: Arc<AtomicU64>,
    queue: Queue<QueuedRequest>,
    breaker: SharedBreaker,
    queue_control: Mutex<QueueControl>,
    /// Whether the last batch had several requests for each counter. A batch of a few requests changes nothing.
    is_hot: AtomicBool,
    /// Whether requests to sliding logs have calls of their own.
    logs_apart: AtomicBool,
    /// The prefix of every key.
    key_prefix: String,
    /// A slot of the node, for the key of the probe; `None` without a cluster.
    probe_slot: Mutex<Option<u16>>,
    probe_mode: CallMode,
    observer: Arc<dyn Observer>,
    queue_depth: QueueDepth,
    linger: Linger,
    max_batch: usize,
    max_queue: usize,
    /// The longest that a decision may take.
    timeout: Duration,
}

impl Node {
    /// Starts the batchers and the probe. The server need not run yet. `name`: the one in [`Backend::nodes`].
    ///
    /// [`Backend::nodes`]: super::backend::Backend::nodes
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
        let observer = Arc::clone(queue_depth.observer());
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
            linger: Linger::new(options.linger),
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

    /// The server that decides.
    pub(crate) fn target(&self) -> &Target {
        &self.state.target
    }

    /// Submits a request, and waits for its answer until `deadline`.
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
            // A queued request is dropped without an answer after its deadline, or when its batcher panics.
            Ok(Err(_)) if Instant::now() < deadline => Err(CallError::Failed(ended_without_answer())),
            Ok(Err(_)) => Err(CallError::Failed(StoreError::Timeout)),
            Err(_) => unread_answer(&mut answer).await.unwrap_or(Err(CallError::Failed(StoreError::Timeout))),
        }
    }

    /// Refuses further requests, answers those that wait, and ends the tasks.
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

    /// Sets the slot of the key that the probe uses.
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

    /// The connections that were opened since the start.
    pub(crate) fn connections_opened(&self) -> u64 {
        self.state.connections_opened.load(Ordering::Relaxed)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.close();
    }
}

/// Reads the answer of a call after its deadline, if it has arrived. When the system does not run a worker for a while,
/// the deadlines of its calls pass before it reads their answers.
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

impl NodeState {
    /// Adds a request to the queue. It may take the place of another caller's request, which then fails.
    fn push(&self, request: QueuedRequest) -> Result<(), CallError> {
        // A full queue does not refuse an undo: its charge would stay recorded, and deny further requests. Undos may
        // fill another `max_queue`. They go first, because their charges deny requests meanwhile. There are no more
        // undos than requests that were decided.
        let queued = if request.encoded.is_undo() {
            self.queue.push_first(self.max_queue.saturating_mul(2), request).map(|()| None)
        } else {
            self.queue.push(request.encoded.caller(), request)
        };
        match queued {
            Ok(None) => Ok(()),
            Ok(Some(displaced)) => {
                displaced.answer(Err(CallError::Failed(StoreError::Overloaded)));
                Ok(())
            }
            Err((Refusal::Full, _)) => Err(CallError::Failed(StoreError::Overloaded)),
            Err((Refusal::Closed, request)) => Err(CallError::not_sent(request.encoded, shut_down())),
        }
    }

    /// Takes requests for up to `max_batch` counters from the queue. The cost of a call grows with its counters, and
    /// not with its requests. Under overload, requests whose answer would come too late fail now.
    fn take_batch(&self) -> Vec<QueuedRequest> {
        let mut control = self.queue_control.lock();
        let now = Instant::now();
        let answered_at = now + control.service_time(now);
        let weight = |request: &QueuedRequest| {
            let is_in_time = !request.is_abandoned() && request.deadline > answered_at;
            is_in_time.then(|| request.encoded.key_count().max(1))
        };
        let taken = self.queue.take(self.max_batch, weight);
        control.record_dequeue(now, &taken);
        let capacity = control.queue_capacity(now);
        drop(control);
        // Under overload at least a full batch may wait.
        let bound = capacity.map_or(self.max_queue, |capacity| capacity.max(self.max_batch));
        self.queue.set_bound(bound.min(self.max_queue));
        self.queue_depth.set(taken.left);
        for request in taken.stale.into_iter().filter(|request| request.deadline > now) {
            request.answer(Err(CallError::Failed(StoreError::Overloaded)));
        }
        taken.items
    }

    /// Records the result of a call that was sent at `sent`. If it opens a breaker that refuses calls, all waiting
    /// requests fail.
    fn record_result(&self, sent: Instant, result: Result<(), &StoreError>) {
        if let Err(open) = self.breaker.record(sent, result) {
            fail_unsent(self.drain(), &open);
        }
    }

    /// Drops the oldest requests whose deadline has passed: nothing was sent for a while.
    fn drop_late(&self) {
        let now = Instant::now();
        let left = self.queue.drop_stale(|request| request.deadline <= now);
        self.queue_depth.set(left);
        self.forget_load();
    }

    /// Empties the queue without deciding the requests.
    fn drain(&self) -> Vec<QueuedRequest> {
        let waiting = self.queue.take(usize::MAX, |_| Some(0)).items;
        self.queue_depth.set(0);
        self.forget_load();
        waiting
    }

    /// Forgets the load so far, because no request waits or the server got no calls for a while.
    fn forget_load(&self) {
        self.queue_control.lock().forget();
        self.queue.set_bound(self.max_queue);
    }
}
