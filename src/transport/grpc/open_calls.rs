//! Counts the open calls of a worker and of each of its connections. A call is open from its headers until its answer
//! has been passed to HTTP/2 as a whole, so answers that a client does not take count too. Calls that are answered at
//! once are never counted: nothing else on the worker runs while they are open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::engine::Caller;
use crate::telemetry::metrics::RequestFailure;
use crate::transport::Failures;

/// The calls of all connections of one worker. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct WorkerCalls(Arc<WorkerCounts>);

#[derive(Debug)]
struct WorkerCounts {
    open: AtomicUsize,
    connections: AtomicUsize,
    /// How many connections there have been.
    accepted: AtomicU32,
    max_open: usize,
    failures: Failures,
}

/// The calls of one connection.
#[derive(Debug)]
pub(super) struct ConnectionCalls {
    worker: WorkerCalls,
    caller: Caller,
    open: AtomicUsize,
    /// Decision calls that have no answer yet.
    undecided: AtomicUsize,
}

/// Counts one open call until it is dropped.
#[derive(Debug)]
pub(super) struct OpenCall(Arc<ConnectionCalls>);

/// Counts one decision call until it is dropped.
#[derive(Debug)]
pub(super) struct UndecidedCall(Arc<ConnectionCalls>);

impl WorkerCalls {
    pub(super) fn new(max_open: usize, failures: Failures) -> Self {
        let (open, connections, accepted) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU32::new(0));
        Self(Arc::new(WorkerCounts { open, connections, accepted, max_open, failures }))
    }

    /// Counts a connection until the result is dropped.
    pub(super) fn connect(&self) -> Arc<ConnectionCalls> {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
        Arc::new(ConnectionCalls {
            worker: self.clone(),
            caller: Caller(self.0.accepted.fetch_add(1, Ordering::Relaxed)),
            open: AtomicUsize::new(0),
            undecided: AtomicUsize::new(0),
        })
    }
}

impl ConnectionCalls {
    /// Whether the connection may open another call. When the worker's bound is reached, each connection still has its
    /// equal share of it, so a connection with many open calls does not take the place of the others.
    pub(super) fn has_room(&self) -> bool {
        let WorkerCounts { open, connections, max_open, .. } = &*self.worker.0;
        if open.load(Ordering::Relaxed) < *max_open {
            return true;
        }
        let share = max_open / connections.load(Ordering::Relaxed).max(1);
        self.open.load(Ordering::Relaxed) < share.max(1)
    }

    /// The number of the connection among those of its worker.
    pub(super) fn caller(&self) -> Caller {
        self.caller
    }

    pub(super) fn open(self: &Arc<Self>) -> OpenCall {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.worker.0.open.fetch_add(1, Ordering::Relaxed);
        OpenCall(Arc::clone(self))
    }

    pub(super) fn decide(self: &Arc<Self>) -> UndecidedCall {
        self.undecided.fetch_add(1, Ordering::Relaxed);
        UndecidedCall(Arc::clone(self))
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
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        self.0.worker.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for UndecidedCall {
    fn drop(&mut self) {
        self.0.undecided.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for ConnectionCalls {
    fn drop(&mut self) {
        self.worker.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{Metrics, Transport};

    #[test]
    fn a_greedy_connection_leaves_the_others_their_share() {
        let metrics = Metrics::new(800_000).expect("different names");
        let worker = WorkerCalls::new(4, Failures::new(metrics.requests(Transport::Grpc)));
        let (greedy, modest) = (worker.connect(), worker.connect());
        let mut open: Vec<_> = std::iter::repeat_with(|| greedy.open()).take(4).collect();
        assert!(!greedy.has_room());
        open.push(modest.open());
        assert!(modest.has_room(), "2 of 4 calls are its share");
        open.push(modest.open());
        assert!(!modest.has_room());
        open.truncate(3);
        assert!(greedy.has_room() && modest.has_room(), "3 of 4 calls are open");
        drop(open);
        drop(modest);
        let _open: Vec<_> = std::iter::repeat_with(|| greedy.open()).take(4).collect();
        assert!(!greedy.has_room(), "4 of 4 calls, and the only connection");
    }
}
