//! Server options that are not settings: constants, and the number of cores.

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use crate::settings::Server;
use crate::transport::grpc::GrpcOptions;
use crate::transport::{Bounds, UnfinishedBytes};

/// Requests that have arrived in part, of all ports. Four of the largest requests must fit.
const MAX_UNFINISHED_BYTES: usize = 64 * 1024 * 1024;
/// Decisions take milliseconds, so a request that takes longer than this hangs.
pub(super) const FINISH_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn grpc_options(server: &Server) -> GrpcOptions {
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    GrpcOptions {
        workers: server.workers.unwrap_or(cores),
        max_connection_age: server.grpc.max_connection_age,
        finish_within: FINISH_WITHIN,
    }
}

pub(super) fn unfinished_bytes(bounds: &Bounds) -> UnfinishedBytes {
    UnfinishedBytes::new(MAX_UNFINISHED_BYTES.max(bounds.max_message_bytes().saturating_mul(4)))
}
