//! Serving the gRPC port: workers, a dealer that hands them connections, and an end in good order.

use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic_health::server::HealthReporter;

use super::crew::Crew;
use super::{BoxError, Station, health};
use crate::engine::Store;
use crate::transport::Readiness;

/// How the port is served.
#[derive(Clone, Copy, Debug)]
pub struct GrpcOptions {
    /// Threads, each with a runtime, a limiter and a store of its own.
    pub workers: NonZeroUsize,
    /// Open connections; further ones are closed at once.
    pub max_connections: usize,
    /// After which a connection is asked to close, so that load spreads over new processes; `None` = never.
    pub max_connection_age: Option<Duration>,
    /// How long calls in flight may take to finish once nothing new is accepted.
    pub finish_within: Duration,
}

/// Why the port is not served any more.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// No thread for a worker.
    #[error("worker {place} cannot be started")]
    Thread {
        /// Which, from 0.
        place: usize,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// A worker ended by itself.
    #[error("worker {place} ended: {cause}")]
    Worker {
        /// Which, from 0.
        place: usize,
        /// Its reason.
        #[source]
        cause: BoxError,
    },
}

/// What is served, and how. `make_station` is called once on each worker's own runtime.
#[derive(Debug)]
pub struct GrpcService<M> {
    /// The terms.
    pub options: GrpcOptions,
    /// What the health service says.
    pub readiness: Readiness,
    /// Makes a handler and a store.
    pub make_station: M,
}

/// Serves `listener` until `stop`, then finishes what is in flight.
///
/// # Errors
/// [`GrpcError`] when a worker cannot start or ends by itself.
pub async fn serve<M, S>(
    listener: TcpListener,
    service: GrpcService<M>,
    stop: CancellationToken,
) -> Result<(), GrpcError>
where
    M: Fn() -> Result<Station<S>, BoxError> + Clone + Send + 'static,
    S: Store + 'static,
{
    let reporter = HealthReporter::new();
    let (mut crew, mut dealer) = Crew::start(&service, &reporter)?;
    tokio::select! {
        failed = crew.first_to_end() => return Err(failed),
        () = dealer.deal(&listener, service.options.max_connections) => {}
        () = health::follow(&service.readiness, &reporter) => {}
        () = stop.cancelled() => {}
    }
    // Nobody can connect any more while the rest is finished.
    drop(listener);
    crew.finish().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryStore;

    async fn end_of(make_station: fn() -> Result<Station<MemoryStore>, BoxError>) -> String {
        let options = GrpcOptions {
            workers: NonZeroUsize::MIN,
            max_connections: 1,
            max_connection_age: None,
            finish_within: Duration::ZERO,
        };
        let service = GrpcService { options, readiness: Readiness::blocked_by(&[]), make_station };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let ended = serve(listener, service, CancellationToken::new()).await;
        ended.expect_err("nobody asked it to stop").to_string()
    }

    #[tokio::test]
    async fn a_worker_that_cannot_start_ends_the_service_with_the_reason() {
        let reason = end_of(|| Err("no store of paper".into())).await;
        assert_eq!(reason, "worker 0 ended: its limiter cannot be built: no store of paper");
    }

    #[tokio::test]
    async fn a_worker_that_panics_ends_the_service() {
        let reason = end_of(|| panic!("as if by mistake")).await;
        assert_eq!(reason, "worker 0 ended: it panicked");
    }
}
