//! Counts the open calls of a worker and of each of its connections. A call is open from its headers until its answer
//! has been passed to HTTP/2 as a whole, so answers that a client does not take count too. Calls that are answered at
//! once are never counted: nothing else on the worker runs while they are open.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use engine::Caller;
use futures_util::task::AtomicWaker;

use crate::decide::{Failures, MessageError};
use crate::net::unfinished::ARRIVES_WITHIN;
use crate::telemetry::metrics::{RequestFailure, RequestMeter};

/// The calls of all connections of one worker. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct WorkerCalls(Arc<WorkerCounts>);

#[derive(Debug)]
struct WorkerCounts {
    open: CallCount,
    /// Decisions that wait for their store.
    waiting: CallCount,
    /// How many connections there have been.
    accepted: AtomicU32,
    bounds: CallBounds,
    failures: Failures,
    meter: RequestMeter,
}

/// Calls of one kind.
#[derive(Debug, Default)]
struct CallCount {
    calls: AtomicUsize,
    /// The connections that have such calls.
    connections: AtomicUsize,
}

/// The bounds of the calls of one worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallBounds {
    /// Open calls.
    pub(super) open: usize,
    /// Decisions that wait for their store.
    pub(super) decisions_at_once: usize,
    /// How long a call waits at most until such a decision may start.
    pub(super) hold_at_most: Duration,
}

/// The calls of one connection.
#[derive(Debug)]
pub(super) struct ConnectionCalls {
    worker: WorkerCalls,
    caller: Caller,
    open: AtomicUsize,
    /// Decision calls that have no answer yet.
    undecided: AtomicUsize,
    /// Those of them that wait for their store.
    waiting: AtomicUsize,
    /// Woken when one of them ends.
    next_start: AtomicWaker,
}

/// Counts one open call until it is dropped.
#[derive(Debug)]
pub(super) struct OpenCall(Arc<ConnectionCalls>);

/// Counts one decision call until it is dropped.
#[derive(Debug)]
pub(super) struct UndecidedCall {
    calls: Arc<ConnectionCalls>,
    waits_for_store: bool,
}

impl WorkerCalls {
    pub(super) fn new(bounds: CallBounds, failures: Failures, meter: RequestMeter) -> Self {
        Self(Arc::new(WorkerCounts {
            open: CallCount::default(),
            waiting: CallCount::default(),
            accepted: AtomicU32::new(0),
            bounds,
            failures,
            meter,
        }))
    }

    /// How many calls are open.
    #[cfg(test)]
    pub(super) fn open(&self) -> usize {
        self.0.open.calls.load(Ordering::Relaxed)
    }

    /// A connection without calls.
    pub(super) fn connect(&self) -> Arc<ConnectionCalls> {
        Arc::new(ConnectionCalls {
            worker: self.clone(),
            caller: Caller(self.0.accepted.fetch_add(1, Ordering::Relaxed)),
            open: AtomicUsize::new(0),
            undecided: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            next_start: AtomicWaker::new(),
        })
    }
}

impl CallCount {
    /// Whether a connection that has `own` of these calls may have another one. When the bound is reached, each
    /// connection with such calls still has its equal share of it, so a connection with many calls does not take the
    /// place of the others.
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

impl ConnectionCalls {
    /// Whether the connection may open another call.
    pub(super) fn has_room(&self) -> bool {
        let worker = &*self.worker.0;
        worker.open.has_room(&self.open, worker.bounds.open)
    }

    /// Whether another decision of the connection may wait for its store. If not, some of the connection wait.
    pub(super) fn may_decide(&self) -> bool {
        let worker = &*self.worker.0;
        worker.waiting.has_room(&self.waiting, worker.bounds.decisions_at_once)
    }

    /// Whether fewer decisions of the worker wait for its store than it takes at once.
    pub(super) fn store_has_room(&self) -> bool {
        self.worker.0.waiting.calls.load(Ordering::Relaxed) < self.worker.0.bounds.decisions_at_once
    }

    /// Counts a call whose headers are too long to be read.
    pub(super) fn record_long_headers(&self) {
        let reason = "the headers are longer than this service reads";
        self.worker.0.failures.record(RequestFailure::Invalid, &reason);
    }

    /// Counts a call with long trailers; the connection cannot go on.
    pub(super) fn record_long_trailers(&self) -> io::Error {
        let reason = "the trailers of a call are too long";
        self.worker.0.failures.record(RequestFailure::Invalid, &reason);
        io::Error::other(reason)
    }

    /// Counts a call whose headers have not arrived in time; the connection cannot go on.
    pub(super) fn record_late_headers(&self) -> io::Error {
        let late = MessageError::Late(ARRIVES_WITHIN);
        self.worker.0.failures.record(RequestFailure::Incomplete, &late);
        io::Error::other(late)
    }

    /// Counts a call whose headers find no room among the unfinished requests; the connection cannot go on.
    pub(super) fn record_many_bytes(&self) -> io::Error {
        self.worker.0.failures.record(RequestFailure::Overloaded, &MessageError::ManyBytes);
        io::Error::other(MessageError::ManyBytes)
    }

    /// Counts a call that is held.
    pub(super) fn record_held(&self) {
        self.worker.0.meter.record_held();
    }

    /// How long a call waits at most until its decision may start.
    pub(super) fn hold_at_most(&self) -> Duration {
        self.worker.0.bounds.hold_at_most
    }

    /// Wakes the task when a decision of the connection that waits for its store has ended.
    pub(super) fn wake_after_decision(&self, task: &Waker) {
        self.next_start.register(task);
    }

    /// The number of the connection among those of its worker.
    pub(super) fn caller(&self) -> Caller {
        self.caller
    }

    pub(super) fn open(self: &Arc<Self>) -> OpenCall {
        self.worker.0.open.add(&self.open);
        OpenCall(Arc::clone(self))
    }

    /// Counts a decision call, which has to wait for its store or for the rest of its message.
    pub(super) fn decide(self: &Arc<Self>, waits_for_store: bool) -> UndecidedCall {
        self.undecided.fetch_add(1, Ordering::Relaxed);
        if waits_for_store {
            self.worker.0.waiting.add(&self.waiting);
        }
        UndecidedCall { calls: Arc::clone(self), waits_for_store }
    }

    /// How many calls of the connection are open.
    pub(super) fn open_calls(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn has_undecided(&self) -> bool {
        self.undecided.load(Ordering::Relaxed) > 0
    }
}

impl OpenCall {
    /// Counts the call as one whose time limit passed before its decision.
    pub(super) fn record_late(&self) {
        self.0.worker.0.failures.record(RequestFailure::Deadline, &"the call was not decided in time");
    }

    /// Counts the call as one whose answer the client did not take.
    pub(super) fn record_untaken(&self) {
        self.0.worker.0.failures.record(RequestFailure::Untaken, &"the client does not take the answer");
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.0.worker.0.open.remove(&self.0.open);
    }
}

impl Drop for UndecidedCall {
    fn drop(&mut self) {
        self.calls.undecided.fetch_sub(1, Ordering::Relaxed);
        if self.waits_for_store {
            self.calls.worker.0.waiting.remove(&self.calls.waiting);
            self.calls.next_start.wake();
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
        let bounds = CallBounds { open: 4, decisions_at_once: 1, hold_at_most: Duration::ZERO };
        let meter = metrics.requests(Transport::Grpc);
        let worker = WorkerCalls::new(bounds, Failures::new(meter.clone()), meter);
        let (greedy, modest) = (worker.connect(), worker.connect());
        let mut open: Vec<_> = std::iter::repeat_with(|| greedy.open()).take(4).collect();
        assert!(!greedy.has_room());
        open.push(modest.open());
        assert!(modest.has_room(), "2 of 4 calls are its share");
        open.push(modest.open());
        assert!(!modest.has_room());
        open.truncate(3);
        assert!(greedy.has_room() && modest.has_room(), "3 of 4 calls are open");
        // 300 connections without calls take nothing from the share of the others.
        let _idle: Vec<_> = std::iter::repeat_with(|| worker.connect()).take(300).collect();
        open.push(modest.open());
        assert!(!greedy.has_room() && modest.has_room(), "2 of 4 calls are its share");
        drop(open);
        drop(modest);
        let _open: Vec<_> = std::iter::repeat_with(|| greedy.open()).take(4).collect();
        assert!(!greedy.has_room(), "4 of 4 calls, and the only connection");
    }
}
