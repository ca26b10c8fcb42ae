//! Counts the open calls of a worker and of each of its connections. A call is open from its headers until its whole
//! answer has been passed to HTTP/2, so a call whose client does not take the answer counts too. A call that is
//! answered at once is never counted, because nothing else runs on the worker while it is open.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use engine::Caller;
use futures_util::task::AtomicWaker;
use tokio::sync::Notify;

use crate::decide::{Failures, NoDecision};
use crate::grpc::GrpcOptions;
use crate::telemetry::metrics::RequestMeter;

/// The open calls of the process, shared equally by its workers. An open call takes some 2 KB.
const MAX_OPEN_CALLS: usize = 40_000;
/// A worker decides some 30,000 calls in a second.
const MAX_OPEN_CALLS_OF_WORKER: usize = 10_000;
/// Enough for all calls of two connections.
const MIN_OPEN_CALLS_OF_WORKER: usize = 2 * 1_024;

/// The most open calls of each of this number of workers.
pub(super) fn max_open_calls(workers: NonZeroUsize) -> usize {
    (MAX_OPEN_CALLS / workers).clamp(MIN_OPEN_CALLS_OF_WORKER, MAX_OPEN_CALLS_OF_WORKER)
}

/// The calls of all connections of one worker, and their bounds.
#[derive(Debug)]
pub(super) struct WorkerCounts {
    open: CallCount,
    pub(super) max_open: usize,
    /// Decisions that wait for their store.
    waiting: CallCount,
    max_waiting: usize,
    /// The longest time that a call waits until its decision may start.
    pub(super) hold_at_most: Duration,
    /// The number of connections so far.
    accepted: AtomicU32,
    /// Told of each call that is held: one worker has too little time for the calls of its connections.
    pub(super) burst: Arc<Notify>,
    failures: Failures,
    meter: RequestMeter,
}

/// The number of a worker's calls of one kind.
#[derive(Debug, Default)]
struct CallCount {
    calls: AtomicUsize,
    /// The number of connections that have such calls.
    connections: AtomicUsize,
}

/// The calls of one connection.
#[derive(Debug)]
pub(super) struct ConnectionCounts {
    pub(super) worker: Arc<WorkerCounts>,
    /// The number of the connection among those of its worker.
    pub(super) caller: Caller,
    open: AtomicUsize,
    /// Decision calls without an answer.
    pending: AtomicUsize,
    /// Decision calls that wait for their store.
    waiting: AtomicUsize,
    /// Woken when a decision that waits for its store ends.
    pub(super) next_start: AtomicWaker,
}

/// Counts one open call until it is dropped.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) counts: Arc<ConnectionCounts>,
}

/// Counts one decision call until it is dropped.
#[derive(Debug)]
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

    /// Counts a new connection, which has no calls yet.
    pub(super) fn add_connection(self: &Arc<Self>) -> Arc<ConnectionCounts> {
        Arc::new(ConnectionCounts {
            worker: Arc::clone(self),
            caller: Caller(self.accepted.fetch_add(1, Ordering::Relaxed)),
            open: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            next_start: AtomicWaker::new(),
        })
    }
}

impl CallCount {
    /// Whether a connection that has `own` of these calls may have another one. When the bound is reached, each
    /// connection with such calls still has its equal share of it, so a connection with many calls does not take the
    /// places of other connections.
    fn has_room(&self, own: &AtomicUsize, bound: usize) -> bool {
        if self.calls.load(Ordering::Relaxed) < bound {
            return true;
        }
        let share = bound / self.connections.load(Ordering::Relaxed).max(1);
        own.load(Ordering::Relaxed) < share.max(1)
    }

    /// Adds a call to those of the connection, `own`.
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
    /// Whether the connection may open another call.
    pub(super) fn has_room(&self) -> bool {
        self.worker.open.has_room(&self.open, self.worker.max_open)
    }

    /// Whether another decision of the connection may wait for its store. If not, at least one of its decisions is
    /// waiting.
    pub(super) fn may_decide(&self) -> bool {
        self.worker.waiting.has_room(&self.waiting, self.worker.max_waiting)
    }

    /// Whether the worker may send another decision to its store.
    pub(super) fn store_has_room(&self) -> bool {
        self.worker.waiting.calls.load(Ordering::Relaxed) < self.worker.max_waiting
    }

    /// Counts and logs a call without a decision.
    pub(super) fn record(&self, error: NoDecision) -> NoDecision {
        self.worker.failures.record(error)
    }

    /// Counts a call that is held.
    pub(super) fn record_held(&self) {
        self.worker.meter.record_held();
        self.worker.burst.notify_one();
    }

    pub(super) fn count_open_call(self: &Arc<Self>) -> OpenCall {
        self.worker.open.add(&self.open);
        OpenCall { counts: Arc::clone(self) }
    }

    /// Counts a decision call that has to wait for its store or for the rest of its message.
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
        let (greedy, modest) = (worker.add_connection(), worker.add_connection());
        let mut open: Vec<_> = std::iter::repeat_with(|| greedy.count_open_call()).take(4).collect();
        assert!(!greedy.has_room());
        open.push(modest.count_open_call());
        assert!(modest.has_room(), "2 of 4 calls are its share");
        open.push(modest.count_open_call());
        assert!(!modest.has_room());
        open.truncate(3);
        assert!(greedy.has_room() && modest.has_room(), "3 of 4 calls are open");
        // 300 connections without calls take nothing from the share of the connections with calls.
        let _idle: Vec<_> = std::iter::repeat_with(|| worker.add_connection()).take(300).collect();
        open.push(modest.count_open_call());
        assert!(!greedy.has_room() && modest.has_room(), "2 of 4 calls are its share");
        drop(open);
        drop(modest);
        let _open: Vec<_> = std::iter::repeat_with(|| greedy.count_open_call()).take(4).collect();
        assert!(!greedy.has_room(), "4 of 4 calls, and the only connection");
    }
}
