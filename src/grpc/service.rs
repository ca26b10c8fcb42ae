//! The parameters of the gRPC server, and the errors that end it.

use std::error::Error;
use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::open_calls::CallBounds;
use crate::decide::{Handler, Readiness};
use crate::net::tls::PortTls;
use crate::net::{Admission, UnfinishedBytes};

/// An error of any type: the gRPC server does not know the errors of a store.
pub type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Clone, Copy, Debug)]
pub struct GrpcOptions {
    /// Threads, each with its own runtime, limiter and Redis store.
    pub workers: NonZeroUsize,
    /// As many decisions of a worker wait for its store at a time, and each connection's share of them. Further calls
    /// are held.
    pub decisions_at_once: NonZeroUsize,
    /// How long a call is held at most.
    pub hold_at_most: Duration,
    /// The client of an older connection gets GOAWAY, so that load spreads to new processes; `None` = never.
    pub max_connection_age: Option<Duration>,
    /// Time limit for calls in flight after the listener is closed or a connection has got GOAWAY.
    pub finish_within: Duration,
}

/// Open calls of the process, in equal parts of its workers. An open call takes some 2 KB.
const MAX_OPEN_CALLS: usize = 40_000;
/// A worker has no more: it decides some 30,000 calls in a second.
const MAX_OF_WORKER: usize = 10_000;
/// Each worker may have all calls of two connections.
const MIN_OF_WORKER: usize = 2 * 1_024;

impl GrpcOptions {
    pub(super) fn call_bounds(&self) -> CallBounds {
        CallBounds {
            open: (MAX_OPEN_CALLS / self.workers).clamp(MIN_OF_WORKER, MAX_OF_WORKER),
            decisions_at_once: self.decisions_at_once.get(),
            hold_at_most: self.hold_at_most,
        }
    }
}

/// Why the gRPC port is no longer served.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// The thread of worker `index` cannot be started.
    #[error("worker {index} cannot be started")]
    Thread {
        index: usize,
        #[source]
        cause: io::Error,
    },
    /// Worker `index` ended before it was told to stop.
    #[error("worker {index} ended: {cause}")]
    Worker {
        index: usize,
        #[source]
        cause: BoxError,
    },
}

/// What [`serve`](super::serve) needs beside the listener. `make_context` is called once in each worker, on its
/// runtime.
#[derive(Debug)]
pub struct GrpcService<M> {
    pub options: GrpcOptions,
    pub readiness: Readiness,
    /// The bounds of connections.
    pub admission: Admission,
    /// `None`: clear text.
    pub tls: Option<PortTls>,
    /// Shared with the HTTP ports.
    pub unfinished: UnfinishedBytes,
    pub make_context: M,
}

/// What a worker needs to answer calls.
pub struct WorkerContext<S> {
    pub handler: Handler<S>,
    /// Ends the store's tasks on the worker's runtime. Awaited after the last call.
    pub close: BoxFuture<'static, ()>,
    /// Resolves with the reason when a task of the store dies; pending for as long as all tasks run. The worker then
    /// ends with this reason, because its store cannot decide any more.
    pub died: BoxFuture<'static, BoxError>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_share_the_open_calls_of_the_process() {
        // Workers, open calls of each.
        for (workers, open) in [(1, 10_000), (2, 10_000), (4, 10_000), (8, 5_000), (16, 2_500), (64, 2_048)] {
            let options = GrpcOptions {
                workers: NonZeroUsize::new(workers).expect("not 0"),
                decisions_at_once: NonZeroUsize::MIN,
                hold_at_most: Duration::ZERO,
                max_connection_age: None,
                finish_within: Duration::ZERO,
            };
            assert_eq!(options.call_bounds().open, open, "{workers} workers");
        }
    }
}
