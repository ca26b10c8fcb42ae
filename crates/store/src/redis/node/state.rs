//! State shared by the callers, the batchers and the probe of a node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use engine::StoreError;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::calls::{CallError, CallMode, QueuedRequest, fail_unsent};
use super::queue::{Queue, QueueDepth, Refusal};
use super::queue_control::QueueControl;
use super::shared_breaker::SharedBreaker;
use crate::observer::Observer;
use crate::redis::connect::{ConnectionPool, Target};
use crate::redis::error::shut_down;

pub(super) struct NodeState {
    pub(super) target: Target,
    pub(super) pool: ConnectionPool,
    pub(super) connections_opened: Arc<AtomicU64>,
    pub(super) queue: Queue<QueuedRequest>,
    pub(super) breaker: SharedBreaker,
    pub(super) queue_control: Mutex<QueueControl>,
    /// `true` if the last batch had several requests per counter. Small batches leave it unchanged.
    pub(super) is_hot: AtomicBool,
    /// `true` if requests to sliding logs have their own calls.
    pub(super) logs_apart: AtomicBool,
    /// Comes before every key.
    pub(super) key_prefix: String,
    /// One of the node's slots, for the probe's key; `None` without a cluster.
    pub(super) probe_slot: Mutex<Option<u16>>,
    pub(super) probe_mode: CallMode,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) queue_depth: QueueDepth,
    pub(super) max_batch: usize,
    pub(super) max_queue: usize,
    /// Decision timeout.
    pub(super) timeout: Duration,
}

impl NodeState {
    /// Queues a request. It can displace another caller's request, which then fails.
    pub(super) fn push(&self, request: QueuedRequest) -> Result<(), CallError> {
        // A full queue still accepts an undo: otherwise its charge would stay recorded, and deny requests. Undos can
        // fill another `max_queue`, and go first, because their charges deny requests meanwhile. There are never more
        // undos than decided requests.
        let queued = if request.encoded.is_undo {
            self.queue.push_first(self.max_queue.saturating_mul(2), request).map(|()| None)
        } else {
            self.queue.push(request.encoded.caller, request)
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

    /// Takes requests for up to `max_batch` counters from the queue. The cost of a call grows with its counters, not
    /// with its requests. Under overload, requests whose answer would be late fail now.
    pub(super) fn take_batch(&self) -> Vec<QueuedRequest> {
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
        // Under overload at least a full batch can wait.
        let bound = capacity.map_or(self.max_queue, |capacity| capacity.max(self.max_batch));
        self.queue.set_bound(bound.min(self.max_queue));
        self.queue_depth.set(taken.left);
        for request in taken.stale.into_iter().filter(|request| request.deadline > now) {
            request.answer(Err(CallError::Failed(StoreError::Overloaded)));
        }
        taken.items
    }

    /// Records the result of a call sent at `sent`. If it opens the breaker, all waiting requests fail.
    pub(super) fn record_result(&self, sent: Instant, result: Result<(), &StoreError>) {
        if let Err(open) = self.breaker.record(sent, result) {
            fail_unsent(self.drain(), &open);
        }
    }

    /// Drops the oldest requests whose deadline has passed: nothing was sent for a while.
    pub(super) fn drop_late(&self) {
        let now = Instant::now();
        let left = self.queue.drop_stale(|request| request.deadline <= now);
        self.queue_depth.set(left);
        self.forget_load();
    }

    /// Empties the queue without deciding the requests.
    pub(super) fn drain(&self) -> Vec<QueuedRequest> {
        let waiting = self.queue.take(usize::MAX, |_| Some(0)).items;
        self.queue_depth.set(0);
        self.forget_load();
        waiting
    }

    /// Forgets the load, because no request waits or the server got no calls for a while.
    pub(super) fn forget_load(&self) {
        self.queue_control.lock().forget();
        self.queue.set_bound(self.max_queue);
    }
}
