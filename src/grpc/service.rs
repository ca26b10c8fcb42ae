//! What the gRPC port serves, with which bounds, and the errors that end it.

use std::error::Error;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::decisions::Decisions;
use crate::decide::Readiness;
use crate::net::tls::PortTls;
use crate::net::{Admission, UnfinishedBytes};

/// An error of any type: the gRPC server does not know the errors of a store.
pub type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Clone, Copy, Debug)]
pub struct GrpcOptions {
    /// Threads, each with its own runtime, limiter and Redis store.
    pub workers: NonZeroUsize,
    /// The most decisions of a worker that may wait for its store at once; its connections share them equally. Further
    /// calls are held.
    pub decisions_at_once: NonZeroUsize,
    /// The longest time that a call is held.
    pub hold_at_most: Duration,
    /// The client of an older connection gets GOAWAY, so that load spreads to new processes; `None` = never.
    pub max_connection_age: Option<Duration>,
    /// Time limit for calls in flight after the listener is closed or a connection has got GOAWAY.
    pub finish_within: Duration,
}

/// The open calls of the process, shared equally by its workers. An open call takes some 2 KB.
const MAX_OPEN_CALLS: usize = 40_000;
/// A worker decides some 30,000 calls in a second.
const MAX_OPEN_CALLS_OF_WORKER: usize = 10_000;
/// Enough for all calls of two connections.
const MIN_OPEN_CALLS_OF_WORKER: usize = 2 * 1_024;

impl GrpcOptions {
    /// The most open calls of one worker.
    pub(super) fn max_open_calls(&self) -> usize {
        (MAX_OPEN_CALLS / self.workers).clamp(MIN_OPEN_CALLS_OF_WORKER, MAX_OPEN_CALLS_OF_WORKER)
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

/// What [`serve`](super::serve) needs beside the listener.
pub struct GrpcService {
    pub options: GrpcOptions,
    pub readiness: Readiness,
    pub admission: Admission,
    /// `None`: clear text.
    pub tls: Option<PortTls>,
    /// Shared with the HTTP ports.
    pub unfinished: UnfinishedBytes,
    /// Called once in each worker, on its runtime.
    pub make_context: MakeContext,
}

pub type MakeContext = Arc<dyn Fn() -> Result<WorkerContext, BoxError> + Send + Sync>;

/// What a worker needs to answer calls.
pub struct WorkerContext {
    pub decisions: Decisions,
    /// Ends the store's tasks on the worker's runtime. Awaited after the last call.
    pub close: BoxFuture<'static, ()>,
    /// Resolves with the reason when a task of the store dies; pending for as long as all tasks run. The worker then
    /// ends with this reason, because its store cannot decide any more.
    pub died: BoxFuture<'static, BoxError>,
}
