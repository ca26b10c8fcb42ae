//! One worker: a single-threaded runtime on a thread of its own that serves the connections it is dealt, with a
//! limiter and a store of its own. Workers share nothing but the rules and the metrics.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use super::connection::Accepted;
use super::dispatch::Dispatch;
use super::pb::FILE_DESCRIPTOR_SET;
use super::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use super::{GrpcOptions, Rls};
use crate::engine::Store;

/// Any error that says why something could not be set up.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// What one worker works with.
pub struct Station<S> {
    /// Answers the calls.
    pub rls: Rls<S>,
    /// Ends what the store has running on the worker's runtime, once there are no more calls.
    pub close: BoxFuture<'static, ()>,
}

/// Envoy opens one connection per worker thread and allows 1,024 calls at once on each.
const MAX_CONCURRENT_STREAMS: u32 = 1_024;
/// Request headers are a handful; what does not fit is refused by the protocol itself.
const MAX_HEADER_LIST_BYTES: u32 = 16 * 1024;
/// A caller that sends half a request is not waited for any longer.
const LONGEST_CALL: Duration = Duration::from_secs(30);
/// A peer that has vanished without a word is noticed after both.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a worker ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkerError {
    #[error("its runtime cannot be built: {0}")]
    Runtime(#[source] io::Error),
    #[error("its limiter cannot be built: {0}")]
    Limiter(#[source] BoxError),
    #[error("its reflection service cannot be built: {0}")]
    Reflection(#[source] tonic_reflection::server::Error),
    #[error("it cannot serve: {0}")]
    Serve(#[source] tonic::transport::Error),
}

/// What a worker is started with.
pub(super) struct Worker<M> {
    pub(super) make_station: M,
    pub(super) options: GrpcOptions,
    pub(super) health: HealthReporter,
    pub(super) connections: mpsc::Receiver<Accepted>,
    pub(super) stop: CancellationToken,
}

impl<M, S> Worker<M>
where
    M: Fn() -> Result<Station<S>, BoxError>,
    S: Store + 'static,
{
    /// Serves on this thread until asked to stop, then finishes what is in flight.
    pub(super) fn run(self) -> Result<(), WorkerError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(WorkerError::Runtime)?;
        let served = runtime.block_on(self.serve());
        // Lookups of names that hang are not waited for.
        runtime.shutdown_background();
        served
    }

    async fn serve(self) -> Result<(), WorkerError> {
        let Station { rls, close } = (self.make_station)().map_err(WorkerError::Limiter)?;
        let max_message_bytes = rls.bounds.max_message_bytes();
        let dispatch = Dispatch {
            first: RateLimitServiceServer::new(rls).max_decoding_message_size(max_message_bytes),
            others: others(self.health)?,
        };
        let connections = ReceiverStream::new(self.connections)
            // A connection that cannot be tied to this runtime is gone; its peer will open another.
            .filter_map(|accepted| accepted.settle(self.stop.clone()).ok())
            .map(Ok::<_, Infallible>);
        let stopped = self.stop.clone().cancelled_owned();
        let served = server(&self.options).serve_with_incoming_shutdown(dispatch, connections, stopped);
        let out_of_patience = async {
            self.stop.cancelled().await;
            tokio::time::sleep(self.options.finish_within).await;
        };
        tokio::select! {
            served = served => served.map_err(WorkerError::Serve)?,
            () = out_of_patience => {
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
        .timeout(LONGEST_CALL);
    match options.max_connection_age {
        Some(age) => server.max_connection_age(age),
        None => server,
    }
}

/// Health, and reflection for tools that are not given the contract.
fn others(health: HealthReporter) -> Result<Routes, WorkerError> {
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
    // Settled now rather than with every connection.
    Ok(routes.routes().prepare())
}
