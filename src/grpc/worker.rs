//! One worker: a thread with a single-threaded runtime that serves the connections assigned to it. A worker has its own
//! limiter and its own Redis store. Workers share the rules, the metrics, the memory store and the deny cache.

use std::io;
use std::sync::Arc;

use engine::Store;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;

use super::call::DecisionCalls;
use super::connection::{AcceptedConnection, WorkerConnection};
use super::connection_server::ConnectionServer;
use super::health::HealthService;
use super::message::MessageBounds;
use super::open_calls::WorkerCalls;
use super::open_streams::OpenStreams;
use super::pb::FILE_DESCRIPTOR_SET;
use super::service::{BoxError, GrpcOptions, WorkerContext};
use crate::decide::Readiness;
use crate::net::UnfinishedBytes;

/// Of the requests for health and reflection.
const MAX_OTHER_MESSAGE_BYTES: usize = 4 * 1024;

/// Why a worker ended before it was told to stop.
#[derive(Debug, thiserror::Error)]
pub(super) enum WorkerError {
    #[error("its runtime cannot be built: {0}")]
    Runtime(#[source] io::Error),
    #[error("its store cannot be set up: {0}")]
    StoreSetup(#[source] BoxError),
    #[error("its reflection service cannot be built: {0}")]
    Reflection(#[source] tonic_reflection::server::Error),
    #[error("a task of its store died: {0}")]
    StoreTask(#[source] BoxError),
}

/// After so many polls of tasks a worker looks for what has arrived on its sockets. A poll of a busy connection takes
/// up to 200 µs; with tokio's default, 61 polls, a call of another connection would not be seen for 10 ms.
const EVENT_INTERVAL: u32 = 16;

/// The runtime of a worker.
pub(super) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()
}

pub(super) struct Worker<M> {
    pub(super) make_context: M,
    pub(super) options: GrpcOptions,
    pub(super) readiness: Readiness,
    pub(super) unfinished: UnfinishedBytes,
    pub(super) streams: OpenStreams,
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
        let runtime = runtime().map_err(WorkerError::Runtime)?;
        let served = runtime.block_on(self.serve());
        // Does not wait for the runtime's blocking threads, where a DNS lookup may hang.
        runtime.shutdown_background();
        served
    }

    async fn serve(mut self) -> Result<(), WorkerError> {
        let WorkerContext { handler, close, died } =
            (self.make_context)().map_err(WorkerError::StoreSetup)?;
        let bounds = MessageBounds {
            max_bytes: handler.bounds.max_message_bytes(),
            unfinished: self.unfinished.clone(),
        };
        let server = Arc::new(ConnectionServer {
            calls: WorkerCalls::new(
                self.options.call_bounds(),
                handler.failures.clone(),
                handler.meter.clone(),
            ),
            streams: self.streams.clone(),
            decisions: Arc::new(DecisionCalls { handler, bounds }),
            routes: other_services(self.readiness.clone())?,
            options: self.options,
            stop: self.stop.clone(),
        });
        tokio::select! {
            () = self.serve_connections(&server) => {}
            reason = died => return Err(WorkerError::StoreTask(reason)),
        }
        if tokio::time::timeout(self.options.finish_within, close).await.is_err() {
            tracing::warn!("the store did not end within {:?}", self.options.finish_within);
        }
        Ok(())
    }

    /// Serves until told to stop, then waits until the connections are closed.
    async fn serve_connections(&mut self, server: &Arc<ConnectionServer<S>>) {
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(accepted) = self.connections.recv() => {
                    // If a socket cannot be registered with this runtime, it is dropped; the client connects again.
                    if let Ok(connection) = accepted.into_connection(self.stop.clone()) {
                        spawn_connection(&mut open, Arc::clone(server), connection);
                    }
                }
                Some(ended) = open.join_next() => log_panic(&ended),
                else => break,
            }
        }
        let all_closed = async { while open.join_next().await.is_some() {} };
        if tokio::time::timeout(self.options.finish_within, all_closed).await.is_err() {
            tracing::warn!("connections were still open after {:?}", self.options.finish_within);
        }
    }
}

fn spawn_connection<S: Store + 'static>(
    open: &mut JoinSet<()>,
    server: Arc<ConnectionServer<S>>,
    connection: WorkerConnection,
) {
    match connection {
        WorkerConnection::Tcp(connection) => {
            let (turn, place) = (connection.turn(), connection.place());
            open.spawn(server.serve(connection, turn, place));
        }
        WorkerConnection::Unix(connection) => {
            let (turn, place) = (connection.turn(), connection.place());
            open.spawn(server.serve(connection, turn, place));
        }
        WorkerConnection::Tls(connection) => {
            let (turn, place) = (connection.turn(), connection.place());
            open.spawn(server.serve(connection, turn, place));
        }
    }
}

fn log_panic(ended: &Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection ended by a panic");
    }
}

/// Health, and reflection for tools without a copy of the contract.
pub(super) fn other_services(readiness: Readiness) -> Result<Routes, WorkerError> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let health = HealthServer::new(HealthService(readiness));
    let health = health.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES);
    let v1 = reflection().build_v1().map_err(WorkerError::Reflection)?;
    let v1alpha = reflection().build_v1alpha().map_err(WorkerError::Reflection)?;
    let mut routes = Routes::builder();
    routes
        .add_service(health)
        .add_service(v1.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES))
        .add_service(v1alpha.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES));
    // Prepared once here, not once per connection.
    Ok(routes.routes().prepare())
}
