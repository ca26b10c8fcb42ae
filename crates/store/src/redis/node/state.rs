//! What the batchers and the probe of one node share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use engine::StoreError;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::admission::Admission;
use super::job::{CallError, CallMode, Job, fail_unsent};
use super::queue::{Queue, Refusal};
use super::shared_breaker::SharedBreaker;
use crate::redis::connect::{ConnectionPool, Target};
use crate::redis::error::shut_down;
use crate::redis::observer::QueueDepth;

/// The state of one node.
pub(super) struct NodeState {
    pub(super) target: Target,
    pub(super) pool: ConnectionPool,
    /// The connections that the pool has opened.
    pub(super) connections_opened: Arc<AtomicU64>,
    pub(super) queue: Queue<Job>,
    pub(super) breaker: SharedBreaker,
    pub(super) admission: Mutex<Admission>,
    /// Whether the last batch had several requests for each counter. A batch of a few requests changes nothing.
    pub(super) last_batch_was_hot: AtomicBool,
    /// Whether requests to sliding logs have calls of their own.
    pub(super) logs_apart: AtomicBool,
    /// The prefix of every key.
    pub(super) key_prefix: String,
    /// A slot of the node, for the key of the probe; `None` without a cluster.
    pub(super) probe_slot: Mutex<Option<u16>>,
    pub(super) probe_mode: CallMode,
    pub(super) queue_depth: QueueDepth,
    pub(super) max_batch: usize,
    pub(super) max_queue: usize,
    /// The longest that a decision may take.
    pub(super) timeout: Duration,
}

impl NodeState {
    /// Adds a request to the queue. It may take the place of another caller's request, which then fails.
    pub(super) fn push(&self, job: Job) -> Result<(), CallError> {
        // An undo is not refused because of too many requests: its charge would stay recorded, and deny further
        // requests. Undos may fill another `max_queue`. They go first, because the charge denies requests meanwhile;
        // there are no more of them than requests that were decided.
        let queued = if job.request.is_undo() {
            self.queue.push_first(self.max_queue.saturating_mul(2), job).map(|()| None)
        } else {
            self.queue.push(job.request.caller(), job)
        };
        match queued {
            Ok(None) => Ok(()),
            Ok(Some(displaced)) => {
                displaced.answer(Err(CallError::Failed(StoreError::Overloaded)));
                Ok(())
            }
            Err((Refusal::Full, _)) => Err(CallError::Failed(StoreError::Overloaded)),
            Err((Refusal::Closed, job)) => Err(CallError::not_sent(job.request, shut_down())),
        }
    }

    /// Takes requests for up to `max_batch` counters from the queue: the cost of a call grows with its counters, not
    /// its requests. Under overload, requests whose answer would come too late fail now.
    pub(super) fn take_batch(&self) -> Vec<Job> {
        let mut admission = self.admission.lock();
        let now = Instant::now();
        let answered_at = now + admission.service_time(now);
        let weight = |job: &Job| {
            let is_in_time = !job.is_abandoned() && job.deadline > answered_at;
            is_in_time.then(|| job.request.key_count().max(1))
        };
        let taken = self.queue.take(self.max_batch, weight);
        admission.record_dequeue(now, &taken);
        let capacity = admission.queue_capacity(now);
        drop(admission);
        // Under overload at least a full batch may wait.
        let bound = capacity.map_or(self.max_queue, |capacity| capacity.max(self.max_batch));
        self.queue.set_bound(bound.min(self.max_queue));
        self.queue_depth.set(taken.left);
        for job in taken.stale.into_iter().filter(|job| job.deadline > now) {
            job.answer(Err(CallError::Failed(StoreError::Overloaded)));
        }
        taken.items
    }

    /// Records the result of a call that was sent at `sent`. If it opens the breaker, all waiting requests fail.
    pub(super) fn record_result(&self, sent: Instant, result: Result<(), &StoreError>) {
        if let Err(open) = self.breaker.record(sent, result) {
            fail_unsent(self.drain(), &open);
        }
    }

    /// Drops the oldest requests whose deadline has passed: nothing was sent for a while.
    pub(super) fn drop_late(&self) {
        let now = Instant::now();
        let left = self.queue.drop_stale(|job| job.deadline <= now);
        self.queue_depth.set(left);
        self.forget_load();
    }

    /// Empties the queue without deciding the requests.
    pub(super) fn drain(&self) -> Vec<Job> {
        let waiting = self.queue.take(usize::MAX, |_| Some(0)).items;
        self.queue_depth.set(0);
        self.forget_load();
        waiting
    }

    /// Forgets the load so far: no request waits, or the server was not asked for a while.
    pub(super) fn forget_load(&self) {
        self.admission.lock().forget();
        self.queue.set_bound(self.max_queue);
    }
}
