//! Runs the gRPC port: workers, an acceptor that assigns connections to them, and a graceful shutdown.
//!
//! A worker is a thread with a single-threaded runtime, its own limiter and its own Redis store; rules, metrics, memory
//! store and deny cache are shared. Workers start, stop and are joined together. Entry point: [`serve`].

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use engine::Store;
use futures_util::future::{BoxFuture, select_all};
use tokio::runtime::Runtime;
use tokio::sync::{Barrier, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::service::Routes;

use super::acceptor::Acceptor;
use super::fast::{self, StreamPlaces};
use super::other_services::other_services;
use super::tonic_server;
use super::worker_link::{Inbox, Workers};
use crate::decide::{Handler, Readiness};
use crate::net::tls_port::PortTls;
use crate::net::{Admission, PortListener, UnfinishedBytes};

/// An error of any type: the gRPC server does not depend on store errors.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Why the gRPC port is no longer served.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// Worker `index` could not start its thread.
    #[error("cannot start worker {index}")]
    Thread {
        index: usize,
        #[source]
        cause: io::Error,
    },
    /// Worker `index` ended before shutdown.
    #[error("worker {index} ended: {cause}")]
    Worker {
        index: usize,
        #[source]
        cause: BoxError,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct GrpcOptions {
    /// Threads, each with its own runtime, limiter and Redis store.
    pub workers: NonZeroUsize,
    /// Maximum decisions of a worker that wait for the store; its connections share them equally. Further calls are
    /// held.
    pub decisions_at_once: NonZeroUsize,
    /// Maximum time that a call is held.
    pub hold_at_most: Duration,
    /// Older connections get GOAWAY, so that load spreads to new processes; `None`: never.
    pub max_connection_age: Option<Duration>,
    /// Time limit for calls in flight after the listener is closed or their connection has got GOAWAY.
    pub finish_within: Duration,
    /// `true`: served by `fast`; `false`: by tonic.
    pub fast: bool,
}

/// What [`serve`] needs in addition to the listener. `S` is the store.
pub struct GrpcService<S> {
    pub options: GrpcOptions,
    pub readiness: Readiness,
    pub admission: Admission,
    /// `None`: clear text.
    pub tls: Option<PortTls>,
    /// Shared with the HTTP ports.
    pub unfinished: UnfinishedBytes,
    /// Called once in each worker, on its runtime.
    pub make_context: MakeContext<S>,
}

pub type MakeContext<S> = Box<dyn Fn() -> Result<WorkerContext<S>, BoxError> + Send + Sync>;

/// What a worker needs to answer calls.
pub struct WorkerContext<S> {
    pub handler: Handler<S>,
    /// Ends the store's tasks on the worker's runtime. Awaited after the last call.
    pub close: BoxFuture<'static, ()>,
    /// Resolves with the reason when a task of the store dies; pending while all tasks run. The worker then ends with
    /// this reason, because its store cannot decide.
    pub died: BoxFuture<'static, BoxError>,
}

/// Serves `listener` until `stop`, then finishes the calls in flight.
///
/// # Errors
/// [`GrpcError`] if a worker cannot start or ends by itself.
pub async fn serve<S: Store + 'static>(
    listener: PortListener,
    service: GrpcService<S>,
    stop: CancellationToken,
) -> Result<(), GrpcError> {
    let service = Arc::new(service);
    let (mut pool, workers) = WorkerPool::start(&service)?;
    let mut acceptor = Acceptor::new(Arc::clone(&workers));
    tokio::select! {
        error = pool.first_to_end() => return Err(error),
        () = acceptor.run(&listener, &service.admission, service.tls.as_ref()) => {}
        () = fast::balance(workers), if service.options.fast => {}
        () = stop.cancelled() => {}
    }
    // Clients can no longer connect while the calls in flight finish.
    drop(listener);
    pool.finish().await
}

/// Stops the workers when dropped.
#[derive(Debug)]
pub(super) struct WorkerPool {
    workers: Vec<WorkerHandle>,
    stop: DropGuard,
}

#[derive(Debug)]
struct WorkerHandle {
    index: usize,
    /// The sender is dropped when the worker ends.
    ended: oneshot::Receiver<Infallible>,
    thread: JoinHandle<Result<(), BoxError>>,
}

impl WorkerPool {
    /// Starts every worker. The returned values reach the workers.
    pub(super) fn start<S: Store + 'static>(
        service: &Arc<GrpcService<S>>,
    ) -> Result<(Self, Arc<Workers>), GrpcError> {
        let (stop, streams) = (CancellationToken::new(), StreamPlaces::default());
        let count = service.options.workers.get();
        let (workers, inboxes) = Workers::new(count);
        if !service.options.fast {
            // Connections of tonic's server do not move.
            workers.set_in_use(count);
        }
        let all_closed = Arc::new(Barrier::new(count));
        let start = |(index, inbox)| {
            let worker = Worker {
                index,
                workers: Arc::clone(&workers),
                inbox,
                all_closed: Arc::clone(&all_closed),
                service: Arc::clone(service),
                streams: streams.clone(),
                stop: stop.clone(),
            };
            WorkerHandle::start(index, worker)
        };
        let started = inboxes.into_iter().enumerate().map(start).collect::<Result<_, _>>()?;
        Ok((Self { workers: started, stop: stop.drop_guard() }, workers))
    }

    async fn first_to_end(&mut self) -> GrpcError {
        let ended = self.workers.iter_mut().map(|worker| &mut worker.ended);
        let (_, place, _) = select_all(ended).await;
        let worker = self.workers.swap_remove(place);
        let index = worker.index;
        let untold = GrpcError::Worker { index, cause: "unexpected end".into() };
        worker.result().err().unwrap_or(untold)
    }

    pub(super) async fn finish(self) -> Result<(), GrpcError> {
        drop(self.stop);
        for mut worker in self.workers {
            // The sender never sends.
            let _ = (&mut worker.ended).await;
            worker.result()?;
        }
        Ok(())
    }
}

impl WorkerHandle {
    fn start<S: Store + 'static>(index: usize, worker: Worker<S>) -> Result<Self, GrpcError> {
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

    /// The result of a worker that has ended. Does not block, because its thread is about to end.
    fn result(self) -> Result<(), GrpcError> {
        let cause: BoxError = match self.thread.join() {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => "it panicked".into(),
        };
        Err(GrpcError::Worker { index: self.index, cause })
    }
}

/// Task polls between two polls of the sockets. A poll of a busy connection takes up to 200 µs: with tokio's default of
/// 61 polls, the worker could leave another connection's call unread for 10 ms.
const EVENT_INTERVAL: u32 = 16;

pub(super) fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()
}

/// A worker before its thread starts.
struct Worker<S> {
    index: usize,
    /// All workers, including this one.
    workers: Arc<Workers>,
    inbox: Inbox,
    /// Each worker waits on it once its connections are closed.
    all_closed: Arc<Barrier>,
    service: Arc<GrpcService<S>>,
    streams: StreamPlaces,
    stop: CancellationToken,
}

/// One server's part of a worker: the source of its connections, and what they share.
pub(super) struct Seat {
    pub(super) own: usize,
    pub(super) workers: Arc<Workers>,
    pub(super) inbox: Inbox,
    pub(super) options: GrpcOptions,
    pub(super) unfinished: UnfinishedBytes,
    pub(super) streams: StreamPlaces,
    pub(super) others: Routes,
    pub(super) stop: CancellationToken,
}

impl<S: Store + 'static> Worker<S> {
    /// Serves on this thread until shutdown, then finishes the calls in flight.
    fn run(self) -> Result<(), BoxError> {
        let runtime = runtime().map_err(|error| format!("cannot build its runtime: {error}"))?;
        let is_first = self.workers.links[self.index].metrics.set(runtime.metrics()).is_ok();
        debug_assert!(is_first, "a worker runs once");
        let served = runtime.block_on(self.serve());
        // Does not wait for the runtime's blocking threads, where a DNS lookup may hang.
        runtime.shutdown_background();
        served
    }

    async fn serve(self) -> Result<(), BoxError> {
        let (service, options) = (&self.service, self.service.options);
        let WorkerContext { handler, close, died } =
            (service.make_context)().map_err(|error| format!("cannot set up its store: {error}"))?;
        let seat = Seat {
            own: self.index,
            workers: self.workers,
            inbox: self.inbox,
            options,
            unfinished: service.unfinished.clone(),
            streams: self.streams,
            others: other_services(service.readiness.clone(), handler.meter.clone(), self.stop.clone())
                .map_err(|error| format!("cannot build its reflection service: {error}"))?,
            stop: self.stop,
        };
        let serve_connections = async {
            match options.fast {
                true => fast::serve_connections(handler, seat).await,
                false => tonic_server::serve_connections(handler, seat).await,
            }
        };
        tokio::select! {
            () = serve_connections => {}
            reason = died => return Err(format!("its store task died: {reason}").into()),
        }
        // A connection that has moved keeps the timers that it started on another worker, and needs that worker's
        // runtime.
        if tokio::time::timeout(options.finish_within, self.all_closed.wait()).await.is_err() {
            tracing::debug!("other workers still serve connections");
        }
        if tokio::time::timeout(options.finish_within, close).await.is_err() {
            tracing::warn!(waited = ?options.finish_within, "store did not stop in time; exiting without it");
        }
        Ok(())
    }
}
