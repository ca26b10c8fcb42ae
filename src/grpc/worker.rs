//! The gRPC port: workers, an acceptor that assigns connections to them, and a graceful stop.
//!
//! A worker is a thread with a single-threaded runtime, which serves the connections assigned to it. It has its own
//! limiter and its own Redis store. Workers share the rules, the metrics, the memory store and the deny cache. They are
//! started together, watched, stopped together, and joined.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use futures_util::future::select_all;
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, Notify, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::acceptor::{Acceptor, WorkersInUse};
use super::balance::Balancer;
use super::call::CallServer;
use super::connection::ConnectionServer;
use super::connection_io::BYTES_PER_POLL;
use super::message::MessageBounds;
use super::open_calls::WorkerCounts;
use super::other_services::other_services;
use super::routed_calls::OpenStreams;
use super::served_connections::ServedConnections;
use super::service::{BoxError, GrpcError, GrpcOptions, GrpcService, MakeContext, WorkerContext};
use super::worker_link::{Arriving, Inbox, WorkerLink, links};
use crate::decide::Readiness;
use crate::net::{PortListener, UnfinishedBytes};

/// Serves `listener` until `stop`, then finishes the calls in flight.
///
/// # Errors
/// [`GrpcError`] when a worker cannot start or ends by itself.
pub async fn serve(
    listener: PortListener,
    service: GrpcService,
    stop: CancellationToken,
) -> Result<(), GrpcError> {
    let (mut workers, mut acceptor, balancer) = WorkerPool::start(&service)?;
    let accept = async {
        match &service.tls {
            None => acceptor.run(&listener, &service.admission).await,
            Some(tls) => acceptor.run_tls(&listener, &service.admission, tls).await,
        }
    };
    tokio::select! {
        error = workers.first_to_end() => return Err(error),
        () = accept => {}
        () = balancer.run() => {}
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
pub(super) struct WorkerPool {
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
    /// Starts every worker. The returned acceptor gives them connections, and the balancer moves connections.
    pub(super) fn start(service: &GrpcService) -> Result<(Self, Acceptor, Balancer), GrpcError> {
        let stop = CancellationToken::new();
        let (in_use, burst) = (WorkersInUse::new(1), Arc::<Notify>::default());
        let (streams, count) = (Arc::<OpenStreams>::default(), service.options.workers.get());
        let (workers, inboxes) = links(count);
        let all_closed = Arc::new(Barrier::new(count));
        let start = |(index, inbox)| {
            let worker = Worker {
                index,
                workers: Arc::clone(&workers),
                inbox,
                burst: Arc::clone(&burst),
                all_closed: Arc::clone(&all_closed),
                make_context: Arc::clone(&service.make_context),
                options: service.options,
                readiness: service.readiness.clone(),
                unfinished: service.unfinished.clone(),
                streams: Arc::clone(&streams),
                stop: stop.clone(),
            };
            WorkerHandle::start(index, worker)
        };
        let started = inboxes.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;
        let acceptor = Acceptor::new(Arc::clone(&workers), in_use.clone());
        let stop = stop.drop_guard();
        Ok((Self { workers: started, stop }, acceptor, Balancer { workers, in_use, burst }))
    }

    /// Waits until a worker ends by itself.
    async fn first_to_end(&mut self) -> GrpcError {
        let results = self.workers.iter_mut().map(|worker| &mut worker.result);
        let (result, index, _) = select_all(results).await;
        self.workers[index].error(result)
    }

    /// Stops and joins all workers.
    pub(super) async fn finish(self) -> Result<(), GrpcError> {
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
    fn start(index: usize, worker: Worker) -> Result<Self, GrpcError> {
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
struct Worker {
    index: usize,
    /// All of them, this one included.
    workers: Arc<[WorkerLink]>,
    inbox: Inbox,
    /// Tells the balancer of calls that are held.
    burst: Arc<Notify>,
    /// Each worker waits here when its connections are closed.
    all_closed: Arc<Barrier>,
    make_context: MakeContext,
    options: GrpcOptions,
    readiness: Readiness,
    unfinished: UnfinishedBytes,
    streams: Arc<OpenStreams>,
    stop: CancellationToken,
}

impl Worker {
    /// Serves on this thread until told to stop, then finishes the calls in flight.
    fn run(self) -> Result<(), WorkerError> {
        let runtime = runtime().map_err(WorkerError::Runtime)?;
        let is_first = self.workers[self.index].metrics.set(runtime.metrics()).is_ok();
        debug_assert!(is_first, "a worker runs once");
        let served = runtime.block_on(self.serve());
        // This does not wait for the blocking threads of the runtime, where a DNS lookup may hang.
        runtime.shutdown_background();
        served
    }

    async fn serve(mut self) -> Result<(), WorkerError> {
        let WorkerContext { decisions, close, died } =
            (self.make_context)().map_err(WorkerError::StoreSetup)?;
        let mut counts =
            WorkerCounts::new(&self.options, decisions.failures.clone(), decisions.meter.clone());
        counts.burst = Arc::clone(&self.burst);
        let calls = CallServer {
            bounds: MessageBounds {
                max_bytes: decisions.max_message_bytes,
                unfinished: self.unfinished.clone(),
            },
            decisions,
            counts: Arc::new(counts),
            routes: other_services(self.readiness.clone()).map_err(WorkerError::Reflection)?,
        };
        let server = Arc::new(ConnectionServer {
            calls: Arc::new(calls),
            streams: Arc::clone(&self.streams),
            options: self.options,
            bytes_per_poll: BYTES_PER_POLL,
            stop: self.stop.clone(),
        });
        tokio::select! {
            () = self.serve_connections(&server) => self.wait_for_other_workers().await,
            reason = died => return Err(WorkerError::StoreTask(reason)),
        }
        if tokio::time::timeout(self.options.finish_within, close).await.is_err() {
            tracing::warn!("the store did not end within {:?}", self.options.finish_within);
        }
        Ok(())
    }

    /// Serves until told to stop, then waits until the connections are closed.
    async fn serve_connections(&mut self, server: &Arc<ConnectionServer>) {
        let mut served = ServedConnections::new(Arc::clone(server), Arc::clone(&self.workers), self.index);
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                Some(arriving) = self.inbox.arriving.recv() => match arriving {
                    Arriving::New(accepted) => {
                        if let Err(error) = served.start(accepted) {
                            tracing::debug!(%error, "a connection is closed: its socket cannot be registered");
                        }
                    }
                    Arriving::Moved(moving) => served.go_on(moving),
                },
                Some(order) = self.inbox.orders.recv() => served.give_away(order),
                Some(()) = served.one_leaves() => {}
            }
        }
        // A connection that is on its way here from another worker is served to its end.
        self.inbox.arriving.close();
        while let Some(arriving) = self.inbox.arriving.recv().await {
            if let Arriving::Moved(moving) = arriving {
                served.go_on(moving);
            }
        }
        let all_closed = async { while served.one_leaves().await.is_some() {} };
        if tokio::time::timeout(self.options.finish_within, all_closed).await.is_err() {
            tracing::warn!("connections were still open after {:?}", self.options.finish_within);
        }
    }

    /// Waits until no worker serves a connection. A connection that has moved keeps the timers that began on another
    /// worker, and needs the runtime of that worker.
    async fn wait_for_other_workers(&self) {
        let all_closed = tokio::time::timeout(self.options.finish_within, self.all_closed.wait());
        if all_closed.await.is_err() {
            tracing::debug!("other workers still serve connections");
        }
    }
}
