//! Server options that are not settings: constants, and the number of cores.

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use crate::settings::Server;
use crate::transport::grpc::GrpcOptions;
use crate::transport::http::HttpOptions;

/// Far more than a fleet of Envoys opens; each connection costs some tens of kilobytes.
const MAX_GRPC_CONNECTIONS: usize = 10_000;
/// For probes, scrapers and people.
const MAX_HTTP_CONNECTIONS: usize = 1_024;
/// Decisions take milliseconds, so a request that takes longer than this hangs.
const FINISH_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn grpc_options(server: &Server) -> GrpcOptions {
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    GrpcOptions {
        workers: server.workers.unwrap_or(cores),
        max_connections: MAX_GRPC_CONNECTIONS,
        max_connection_age: server.grpc.max_connection_age,
        finish_within: FINISH_WITHIN,
    }
}

pub(super) fn http_options() -> HttpOptions {
    HttpOptions { max_connections: MAX_HTTP_CONNECTIONS, finish_within: FINISH_WITHIN }
}
