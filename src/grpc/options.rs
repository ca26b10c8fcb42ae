//! The settings of the gRPC port, and the bounds that follow from them.

use std::num::NonZeroUsize;
use std::time::Duration;

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
