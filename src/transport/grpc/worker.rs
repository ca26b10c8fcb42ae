//! One worker: a thread with a single-threaded runtime that serves the connections assigned to it. A worker has its own
//! limiter and its own Redis store. Workers share the rules, the metrics, the memory store and the deny cache.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::connection::AcceptedConnection;
use super::dispatch::Dispatch;
use super::pb::FILE_DESCRIPTOR_SET;
use super::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use super::service::{BoxError, GrpcOptions, WorkerContext};
use crate::engine::Store;

/// Envoy opens one connection per worker thread and allows 1,024 calls at once on each.
const MAX_CONCURRENT_STREAMS: u32 = 1_024;
/// Callers send few headers. The HTTP/2 layer refuses a longer list.
const MAX_HEADER_LIST_BYTES: u32 = 16 * 1024;
/// The time limit of a call, for requests that do not arrive completely.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// After this time without a frame the server sends a PING. It closes the connection if no answer comes in time.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a worker ended before it was told to stop.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkerError {
    #[error("its runtime cannot be built: {0}")]
    Runtime(#[source] io::Error),
    #[error("its store cannot be set up: {0}")]
    StoreSetup(#[source] BoxError),
    #[error("its reflection service cannot be built: {0}")]
    Reflection(#[source] tonic_reflection::server::Error),
    #[error("it cannot serve: {0}")]
    Serve(#[source] tonic::transport::Error),
    #[error("a task of its store died: {0}")]
    StoreTask(#[source] BoxError),
}

pub(super) struct Worker<M> {
    pub(super) make_context: M,
    pub(super) options: GrpcOptions,
    pub(super) health: HealthReporter,
    pub(super) connections: mpsc::Receiver<AcceptedConnection>,
    pub(super) stop: CancellationToken,
}

impl<M, S> Worker<M>
where
    M: Fn() -> Result<WorkerContext<S>, BoxError>,
    S: Store + 'static,
{
    /// Serves on this thread until told to stop, then finishes the calls in flight.
    pub(super) fn run(self) -> Result<(), WorkerError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(WorkerError::Runtime)?;
        let served = runtime.block_on(self.serve());
        // Does not wait for the runtime's blocking threads, where a DNS lookup may hang.
        runtime.shutdown_background();
        served
    }

    async fn serve(self) -> Result<(), WorkerError> {
        let WorkerContext { handler, close, died } =
            (self.make_context)().map_err(WorkerError::StoreSetup)?;
        let max_message_bytes = handler.bounds.max_message_bytes();
        let dispatch = Dispatch {
            rls: RateLimitServiceServer::new(handler).max_decoding_message_size(max_message_bytes),
            routes: other_services(self.health)?,
        };
        let connections = ReceiverStream::new(self.connections)
            // If a socket cannot be registered with this runtime, it is dropped; the client connects again.
            .filter_map(|accepted| accepted.into_connection(self.stop.clone()).ok())
            .map(Ok::<_, Infallible>);
        let stopped = self.stop.clone().cancelled_owned();
        let served = server(&self.options).serve_with_incoming_shutdown(dispatch, connections, stopped);
        let finish_deadline = async {
            self.stop.cancelled().await;
            tokio::time::sleep(self.options.finish_within).await;
        };
        tokio::select! {
            served = served => served.map_err(WorkerError::Serve)?,
            reason = died => return Err(WorkerError::StoreTask(reason)),
            () = finish_deadline => {
                tracing::warn!("connections were still open after {:?}", self.options.finish_within);
            }
        }
        if tokio::time::timeout(self.options.finish_within, close).await.is_err() {
            tracing::warn!("the store did not end within {:?}", self.options.finish_within);
        }
        Ok(())
    }
}

fn server(options: &GrpcOptions) -> Server {
    let server = Server::builder()
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .http2_max_header_list_size(MAX_HEADER_LIST_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .timeout(CALL_TIMEOUT);
    match options.max_connection_age {
        Some(age) => server.max_connection_age(age),
        None => server,
    }
}

/// Health, and reflection for tools without a copy of the contract.
fn other_services(health: HealthReporter) -> Result<Routes, WorkerError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let mut routes = Routes::builder();
    routes
        .add_service(HealthServer::new(HealthService::from_health_reporter(health)))
        .add_service(reflection().build_v1().map_err(WorkerError::Reflection)?)
        .add_service(reflection().build_v1alpha().map_err(WorkerError::Reflection)?);
    // Prepared once here, not once per connection.
    Ok(routes.routes().prepare())
}
