//! The gRPC port: workers, an acceptor that assigns connections to them, and a graceful stop.
//!
//! A worker is a thread with a single-threaded runtime, which serves the connections assigned to it. It has its own
//! limiter and its own Redis store. Workers share the rules, the metrics, the memory store and the deny cache. They are
//! started together, watched, stopped together, and joined.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use futures_util::future::{BoxFuture, select_all};
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::acceptor::Acceptor;
use super::balance::Balancer;
use super::call::CallServer;
use super::connection::ConnectionServer;
use super::connection_io::BYTES_PER_POLL;
use super::decisions::Decisions;
use super::message::MessageBounds;
use super::open_calls::{GrpcOptions, WorkerCounts};
use super::other_services::other_services;
use super::routed_calls::StreamPlaces;
use super::served_connections::ServedConnections;
use super::worker_link::{Arriving, Inbox, Workers};
use crate::decide::Readiness;
use crate::net::tls_port::PortTls;
use crate::net::{Admission, PortListener, UnfinishedBytes};

/// An error of any type: the gRPC server does not know the errors of a store.
pub type BoxError = Box<dyn Error + Send + Sync>;

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

/// What [`serve`] needs beside the listener.
#[derive(Clone)]
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
    tokio::select! {
        error = workers.first_to_end() => return Err(error),
        () = acceptor.run(&listener, &service.admission, service.tls.as_ref()) => {}
        () = balancer.run() => {}
        () = stop.cancelled() => {}
    }
    // Clients cannot connect any more while the calls in flight are finished.
    drop(listener);
    workers.finish().await
}

/// Tells the workers to stop when it is dropped.
#[derive(Debug)]
pub(super) struct WorkerPool {
    workers: Vec<WorkerHandle>,
    stop: DropGuard,
}

#[derive(Debug)]
struct WorkerHandle {
    index: usize,
    /// Its sender is dropped when the worker ends.
    ended: oneshot::Receiver<Infallible>,
    thread: JoinHandle<Result<(), WorkerError>>,
}

impl WorkerPool {
    /// Starts every worker. The returned acceptor gives them connections, and the balancer moves connections.
    pub(super) fn start(service: &GrpcService) -> Result<(Self, Acceptor, Balancer), GrpcError> {
        let (stop, streams) = (CancellationToken::new(), StreamPlaces::default());
        let count = service.options.workers.get();
        let (workers, inboxes) = Workers::new(count);
        let all_closed = Arc::new(Barrier::new(count));
        let start = |(index, inbox)| {
            let worker = Worker {
                index,
                workers: Arc::clone(&workers),
                inbox,
                all_closed: Arc::clone(&all_closed),
                service: service.clone(),
                streams: streams.clone(),
                stop: stop.clone(),
            };
            WorkerHandle::start(index, worker)
        };
        let started = inboxes.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;
        let acceptor = Acceptor::new(Arc::clone(&workers));
        Ok((Self { workers: started, stop: stop.drop_guard() }, acceptor, Balancer { workers }))
    }

    /// Waits until a worker ends by itself.
    async fn first_to_end(&mut self) -> GrpcError {
        let ended = self.workers.iter_mut().map(|worker| &mut worker.ended);
        let (_, place, _) = select_all(ended).await;
        let worker = self.workers.swap_remove(place);
        let index = worker.index;
        let untold = GrpcError::Worker { index, cause: "it was not told to stop".into() };
        worker.result().err().unwrap_or(untold)
    }

    /// Stops and joins all workers.
    pub(super) async fn finish(self) -> Result<(), GrpcError> {
        drop(self.stop);
        for mut worker in self.workers {
            // The sender sends nothing.
            let _ = (&mut worker.ended).await;
            worker.result()?;
        }
        Ok(())
    }
}

impl WorkerHandle {
    fn start(index: usize, worker: Worker) -> Result<Self, GrpcError> {
        let (running, ended) = oneshot::channel();
        let run = move || {
            let result = worker.run();
            drop(running);
            result
        };
        let thread = thread::Builder::new()
            .name(format!("grpc-{index}"))
            .spawn(run)
            .map_err(|cause| GrpcError::Thread { index, cause })?;
        Ok(Self { index, ended, thread })
    }

    /// The result of a worker that has ended. This does not block, because its thread ends right after it.
    fn result(self) -> Result<(), GrpcError> {
        let cause: BoxError = match self.thread.join() {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.into(),
            Err(_) => "it panicked".into(),
        };
        Err(GrpcError::Worker { index: self.index, cause })
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
    workers: Arc<Workers>,
    inbox: Inbox,
    /// Each worker waits here when its connections are closed.
    all_closed: Arc<Barrier>,
    service: GrpcService,
    streams: StreamPlaces,
    stop: CancellationToken,
}

impl Worker {
    /// Serves on this thread until told to stop, then finishes the calls in flight.
    fn run(self) -> Result<(), WorkerError> {
        let runtime = runtime().map_err(WorkerError::Runtime)?;
        let is_first = self.workers.links[self.index].metrics.set(runtime.metrics()).is_ok();
        debug_assert!(is_first, "a worker runs once");
        let served = runtime.block_on(self.serve());
        // This does not wait for the blocking threads of the runtime, where a DNS lookup may hang.
        runtime.shutdown_background();
        served
    }

    async fn serve(mut self) -> Result<(), WorkerError> {
        let GrpcService { options, readiness, unfinished, make_context, .. } = self.service.clone();
        let WorkerContext { decisions, close, died } = make_context().map_err(WorkerError::StoreSetup)?;
        let mut counts = WorkerCounts::new(&options, decisions.failures.clone(), decisions.meter.clone());
        counts.burst = Arc::clone(&self.workers.burst);
        let calls = CallServer {
            bounds: MessageBounds { max_bytes: decisions.max_message_bytes, unfinished },
            decisions,
            counts: Arc::new(counts),
            routes: other_services(readiness).map_err(WorkerError::Reflection)?,
        };
        let server = Arc::new(ConnectionServer {
            calls: Arc::new(calls),
            streams: self.streams.clone(),
            options,
            bytes_per_poll: BYTES_PER_POLL,
            stop: self.stop.clone(),
        });
        tokio::select! {
            () = self.serve_connections(&server) => self.wait_for_other_workers().await,
            reason = died => return Err(WorkerError::StoreTask(reason)),
        }
        if tokio::time::timeout(options.finish_within, close).await.is_err() {
            tracing::warn!("the store did not end within {:?}", options.finish_within);
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
                    Arriving::New(accepted) => served.start(accepted),
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
        if tokio::time::timeout(self.service.options.finish_within, all_closed).await.is_err() {
            tracing::warn!("connections were still open after {:?}", self.service.options.finish_within);
        }
    }

    /// Waits until no worker serves a connection. A connection that has moved keeps the timers that began on another
    /// worker, and needs the runtime of that worker.
    async fn wait_for_other_workers(&self) {
        let all_closed = tokio::time::timeout(self.service.options.finish_within, self.all_closed.wait());
        if all_closed.await.is_err() {
            tracing::debug!("other workers still serve connections");
        }
    }
}
