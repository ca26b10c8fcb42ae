//! Counts the open calls of a worker and of its connections. A call is open from its headers until HTTP/2 has its whole
//! answer, so calls whose clients do not read count as well. A call that is answered immediately is never counted,
//! because nothing else runs on the worker while it is open.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use engine::Caller;
use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use super::undelivered::SlotAnswers;
use crate::decide::{Failures, NoDecision};
use crate::grpc::GrpcOptions;
use crate::telemetry::metrics::RequestMeter;

/// Open calls of the process, shared equally by its workers. An open call takes some 2 KB.
const MAX_OPEN_CALLS: usize = 40_000;
/// A worker decides some 30,000 calls a second.
const MAX_OPEN_CALLS_OF_WORKER: usize = 10_000;
/// Enough for all calls of two connections.
const MIN_OPEN_CALLS_OF_WORKER: usize = 2 * 1_024;

/// Maximum open calls per worker, with this number of workers.
pub(super) fn max_open_calls(workers: NonZeroUsize) -> usize {
    (MAX_OPEN_CALLS / workers).clamp(MIN_OPEN_CALLS_OF_WORKER, MAX_OPEN_CALLS_OF_WORKER)
}

/// Calls of all connections of one worker, and their bounds.
#[derive(Debug)]
pub(super) struct WorkerCounts {
    open: CallCount,
    pub(super) max_open: usize,
    /// Decisions that wait for the store.
    waiting: CallCount,
    max_waiting: usize,
    /// Maximum time that a call waits for its decision to start.
    pub(super) hold_at_most: Duration,
    /// Connections so far.
    accepted: AtomicU32,
    /// Notified of each held call: one worker lacks time for its connections' calls.
    pub(super) burst: Arc<Notify>,
    failures: Failures,
    meter: RequestMeter,
}

/// A worker's calls of one kind.
#[derive(Debug, Default)]
struct CallCount {
    calls: AtomicUsize,
    /// Connections with such calls.
    connections: AtomicUsize,
}

pub(super) struct ConnectionCounts {
    pub(super) worker: Arc<WorkerCounts>,
    /// Identifies the connection within its worker.
    pub(super) caller: Caller,
    open: AtomicUsize,
    /// Unanswered decision calls.
    pending: AtomicUsize,
    /// Decision calls that wait for the store.
    waiting: AtomicUsize,
    /// Woken when a decision that waits for the store ends.
    pub(super) next_start: AtomicWaker,
    pub(super) slot_answers: Arc<SlotAnswers>,
}

/// Counts one open call until it is dropped.
pub(super) struct OpenCall {
    pub(super) counts: Arc<ConnectionCounts>,
}

/// Counts one decision call until it is dropped.
pub(super) struct PendingDecision {
    counts: Arc<ConnectionCounts>,
    waits_for_store: bool,
}

impl WorkerCounts {
    pub(super) fn new(options: &GrpcOptions, failures: Failures, meter: RequestMeter) -> Self {
        Self {
            open: CallCount::default(),
            max_open: max_open_calls(options.workers),
            waiting: CallCount::default(),
            max_waiting: options.decisions_at_once.get(),
            hold_at_most: options.hold_at_most,
            accepted: AtomicU32::new(0),
            burst: Arc::default(),
            failures,
            meter,
        }
    }

    #[cfg(test)]
    pub(super) fn open_calls(&self) -> usize {
        self.open.calls.load(Ordering::Relaxed)
    }

    /// Counts a new connection without calls.
    pub(super) fn add_connection(self: &Arc<Self>, slot_answers: Arc<SlotAnswers>) -> Arc<ConnectionCounts> {
        Arc::new(ConnectionCounts {
            worker: Arc::clone(self),
            caller: Caller(self.accepted.fetch_add(1, Ordering::Relaxed)),
            open: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            next_start: AtomicWaker::new(),
            slot_answers,
        })
    }
}

impl CallCount {
    /// `true` if a connection with `own` of these calls may have another one. At the bound, each connection with such
    /// calls still has an equal share, so a connection with many calls does not crowd out the others.
    fn has_room(&self, own: &AtomicUsize, bound: usize) -> bool {
        if self.calls.load(Ordering::Relaxed) < bound {
            return true;
        }
        let share = bound / self.connections.load(Ordering::Relaxed).max(1);
        own.load(Ordering::Relaxed) < share.max(1)
    }

    fn add(&self, own: &AtomicUsize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if own.fetch_add(1, Ordering::Relaxed) == 0 {
            self.connections.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn remove(&self, own: &AtomicUsize) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
        if own.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl ConnectionCounts {
    /// `true` if the connection may open another call.
    pub(super) fn has_room(&self) -> bool {
        self.worker.open.has_room(&self.open, self.worker.max_open)
    }

    /// `true` if another decision of the connection may wait for the store. If not, at least one of its decisions is
    /// waiting.
    pub(super) fn may_decide(&self) -> bool {
        self.worker.waiting.has_room(&self.waiting, self.worker.max_waiting)
    }

    /// `true` if the worker may send another decision to the store.
    pub(super) fn store_has_room(&self) -> bool {
        self.worker.waiting.calls.load(Ordering::Relaxed) < self.worker.max_waiting
    }

    pub(super) fn record(&self, error: NoDecision) -> NoDecision {
        self.worker.failures.record(error)
    }

    pub(super) fn record_held(&self) {
        self.worker.meter.held.inc();
        self.worker.burst.notify_one();
    }

    pub(super) fn count_open_call(self: &Arc<Self>) -> OpenCall {
        self.worker.open.add(&self.open);
        OpenCall { counts: Arc::clone(self) }
    }

    /// Counts a decision call that has to wait for the store or for the rest of its message.
    pub(super) fn count_pending_decision(self: &Arc<Self>, waits_for_store: bool) -> PendingDecision {
        self.pending.fetch_add(1, Ordering::Relaxed);
        if waits_for_store {
            self.worker.waiting.add(&self.waiting);
        }
        PendingDecision { counts: Arc::clone(self), waits_for_store }
    }

    pub(super) fn open_calls(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn has_pending_decisions(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.counts.worker.open.remove(&self.counts.open);
    }
}

impl Drop for PendingDecision {
    fn drop(&mut self) {
        self.counts.pending.fetch_sub(1, Ordering::Relaxed);
        if self.waits_for_store {
            self.counts.worker.waiting.remove(&self.counts.waiting);
            self.counts.next_start.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{Metrics, Transport};

    #[test]
    fn a_greedy_connection_leaves_the_others_their_share() {
        let metrics = Metrics::new(800_000).expect("different names");
        let options = GrpcOptions {
            workers: NonZeroUsize::MIN,
            decisions_at_once: NonZeroUsize::MIN,
            hold_at_most: Duration::ZERO,
            fast: true,
            max_connection_age: None,
            finish_within: Duration::ZERO,
        };
        let meter = metrics.requests(Transport::Grpc);
        let worker = WorkerCounts::new(&options, Failures::new(meter.clone()), meter);
        let worker = Arc::new(WorkerCounts { max_open: 4, ..worker });
        let add = || worker.add_connection(Arc::new(SlotAnswers::new(Arc::new(|_| {}))));
        let (greedy, modest) = (add(), add());
        let mut open: Vec<_> = std::iter::repeat_with(|| greedy.count_open_call()).take(4).collect();
        assert!(!greedy.has_room());
        open.push(modest.count_open_call());
        assert!(modest.has_room(), "2 of 4 calls are its share");
        open.push(modest.count_open_call());
        assert!(!modest.has_room());
        open.truncate(3);
        assert!(greedy.has_room() && modest.has_room(), "3 of 4 calls are open");
        // 300 connections without calls take nothing from the share of those with calls.
        let _idle: Vec<_> = std::iter::repeat_with(add).take(300).collect();
        open.push(modest.count_open_call());
        assert!(!greedy.has_room() && modest.has_room(), "2 of 4 calls are its share");
        drop(open);
        drop(modest);
        let _open: Vec<_> = std::iter::repeat_with(|| greedy.count_open_call()).take(4).collect();
        assert!(!greedy.has_room(), "4 of 4 calls, and the only connection");
    }
}
