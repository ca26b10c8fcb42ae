//! The gRPC port: workers, an acceptor that assigns connections to them, and a graceful stop.
//!
//! A worker is a thread with a single-threaded runtime, which serves the connections assigned to it. It has its own
//! limiter and its own Redis store. Workers share the rules, the metrics, the memory store and the deny cache. They are
//! started together, watched, stopped together, and joined.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use engine::Store;
use futures_util::future::select_all;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::acceptor::{AcceptedConnection, AcceptedStream, Acceptor};
use super::call::DecisionCalls;
use super::connection::ConnectionServer;
use super::connection_io::BYTES_PER_POLL;
use super::message::MessageBounds;
use super::open_calls::WorkerCounts;
use super::other_services::other_services;
use super::routed_calls::OpenStreams;
use super::service::{BoxError, GrpcError, GrpcOptions, GrpcService, WorkerContext};
use crate::decide::Readiness;
use crate::net::socket::ClientSocket;
use crate::net::{PortListener, UnfinishedBytes};

/// Serves `listener` until `stop`, then finishes the calls in flight.
///
/// # Errors
/// [`GrpcError`] when a worker cannot start or ends by itself.
pub async fn serve<M, S>(
    listener: PortListener,
    service: GrpcService<M>,
    stop: CancellationToken,
) -> Result<(), GrpcError>
where
    M: Fn() -> Result<WorkerContext<S>, BoxError> + Clone + Send + 'static,
    S: Store + 'static,
{
    let (mut workers, mut acceptor) = WorkerPool::start(&service)?;
    let accept = async {
        match &service.tls {
            None => acceptor.run(&listener, &service.admission).await,
            Some(tls) => acceptor.run_tls(&listener, &service.admission, tls).await,
        }
    };
    tokio::select! {
        error = workers.first_to_end() => return Err(error),
        () = accept => {}
        () = stop.cancelled() => {}
    }
    // Clients cannot connect any more while the calls in flight are finished.
    drop(listener);
    workers.finish().await
}

/// A worker's result; `Err` if the worker panicked before it could report one.
type WorkerResult = Result<Result<(), WorkerError>, oneshot::error::RecvError>;

/// Tells the workers to stop when it is dropped.
#[derive(Debug)]
struct WorkerPool {
    workers: Vec<WorkerHandle>,
    stop: DropGuard,
}

#[derive(Debug)]
struct WorkerHandle {
    index: usize,
    result: oneshot::Receiver<Result<(), WorkerError>>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerPool {
    /// Starts every worker. The returned acceptor gives them connections.
    fn start<M, S>(service: &GrpcService<M>) -> Result<(Self, Acceptor), GrpcError>
    where
        M: Fn() -> Result<WorkerContext<S>, BoxError> + Clone + Send + 'static,
        S: Store + 'static,
    {
        let stop = CancellationToken::new();
        let (mut acceptor, streams) = (Acceptor::default(), Arc::<OpenStreams>::default());
        let start = |index| {
            let worker = Worker {
                make_context: service.make_context.clone(),
                options: service.options,
                readiness: service.readiness.clone(),
                unfinished: service.unfinished.clone(),
                streams: Arc::clone(&streams),
                connections: acceptor.add_worker(),
                stop: stop.clone(),
            };
            WorkerHandle::start(index, worker)
        };
        let workers = (0..service.options.workers.get()).map(start).collect::<Result<_, _>>()?;
        let stop = stop.drop_guard();
        Ok((Self { workers, stop }, acceptor))
    }

    /// Waits until a worker ends by itself.
    async fn first_to_end(&mut self) -> GrpcError {
        let results = self.workers.iter_mut().map(|worker| &mut worker.result);
        let (result, index, _) = select_all(results).await;
        self.workers[index].error(result)
    }

    /// Stops and joins all workers.
    async fn finish(self) -> Result<(), GrpcError> {
        drop(self.stop);
        for mut worker in self.workers {
            let result = (&mut worker.result).await;
            if !matches!(result, Ok(Ok(()))) {
                return Err(worker.error(result));
            }
            worker.join();
        }
        Ok(())
    }
}

impl WorkerHandle {
    fn start<M, S>(index: usize, worker: Worker<M>) -> Result<Self, GrpcError>
    where
        M: Fn() -> Result<WorkerContext<S>, BoxError> + Send + 'static,
        S: Store + 'static,
    {
        let (report, result) = oneshot::channel();
        let run = move || {
            // Fails only if the server, which holds the receiver, was dropped.
            let _ = report.send(worker.run());
        };
        let thread = thread::Builder::new()
            .name(format!("grpc-{index}"))
            .spawn(run)
            .map_err(|cause| GrpcError::Thread { index, cause })?;
        Ok(Self { index, result, thread: Some(thread) })
    }

    /// Why the worker ended too early.
    fn error(&mut self, result: WorkerResult) -> GrpcError {
        let cause: BoxError = match result {
            Ok(Ok(())) => "it was not told to stop".into(),
            Ok(Err(error)) => error.into(),
            Err(_) => "it panicked".into(),
        };
        self.join();
        GrpcError::Worker { index: self.index, cause }
    }

    /// This does not block, because the thread ends right after its report.
    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic is known already, because the report is missing.
            let _ = thread.join();
        }
    }
}

/// Why a worker ended before it was told to stop.
#[derive(Debug, thiserror::Error)]
enum WorkerError {
    #[error("its runtime cannot be built: {0}")]
    Runtime(#[source] io::Error),
    #[error("its store cannot be set up: {0}")]
    StoreSetup(#[source] BoxError),
    #[error("its reflection service cannot be built: {0}")]
    Reflection(#[source] tonic_reflection::server::Error),
    #[error("a task of its store died: {0}")]
    StoreTask(#[source] BoxError),
}

/// A worker polls its sockets after this many polls of tasks. A poll of a busy connection takes up to 200 µs: with
/// tokio's default of 61 polls, a call of another connection could wait for 10 ms before the worker sees it.
const EVENT_INTERVAL: u32 = 16;

/// The runtime of a worker.
pub(super) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()
}

/// One worker, before its thread starts.
struct Worker<M> {
    make_context: M,
    options: GrpcOptions,
    readiness: Readiness,
    unfinished: UnfinishedBytes,
    streams: Arc<OpenStreams>,
    connections: mpsc::Receiver<AcceptedConnection>,
    stop: CancellationToken,
}

impl<M, S> Worker<M>
where
    M: Fn() -> Result<WorkerContext<S>, BoxError>,
    S: Store + 'static,
{
    /// Serves on this thread until told to stop, then finishes the calls in flight.
    fn run(self) -> Result<(), WorkerError> {
        let runtime = runtime().map_err(WorkerError::Runtime)?;
        let served = runtime.block_on(self.serve());
        // This does not wait for the blocking threads of the runtime, where a DNS lookup may hang.
        runtime.shutdown_background();
        served
    }

    async fn serve(mut self) -> Result<(), WorkerError> {
        let WorkerContext { handler, close, died } =
            (self.make_context)().map_err(WorkerError::StoreSetup)?;
        let bounds =
            MessageBounds { max_bytes: handler.max_message_bytes, unfinished: self.unfinished.clone() };
        let server = Arc::new(ConnectionServer {
            counts: Arc::new(WorkerCounts::new(
                &self.options,
                handler.failures.clone(),
                handler.meter.clone(),
            )),
            streams: Arc::clone(&self.streams),
            decisions: Arc::new(DecisionCalls { handler, bounds }),
            routes: other_services(self.readiness.clone()).map_err(WorkerError::Reflection)?,
            options: self.options,
            bytes_per_poll: BYTES_PER_POLL,
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
                    if let Err(error) = spawn_connection(&mut open, Arc::clone(server), accepted) {
                        tracing::debug!(%error, "a connection is closed: its socket cannot be registered");
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

/// Registers the socket of a connection with the runtime of this thread, and serves the connection. Each kind of socket
/// has a future of its own type, so that clear text does not pay for TLS.
fn spawn_connection<S: Store + 'static>(
    open: &mut JoinSet<()>,
    server: Arc<ConnectionServer<S>>,
    AcceptedConnection { stream, permit }: AcceptedConnection,
) -> io::Result<()> {
    match stream {
        AcceptedStream::Tcp(socket) => {
            let socket = ClientSocket::from(TcpStream::from_std(socket)?);
            open.spawn(server.serve(socket, permit));
        }
        AcceptedStream::Unix(socket) => {
            let socket = ClientSocket::from(UnixStream::from_std(socket)?);
            open.spawn(server.serve(socket, permit));
        }
        AcceptedStream::Tls(session) => {
            open.spawn(server.serve(session.attach()?, permit));
        }
    }
    Ok(())
}

fn log_panic(ended: &Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection ended by a panic");
    }
}
