//! The gRPC port: its options and the errors that end it, workers, an acceptor that assigns connections to them, and a
//! graceful stop.

use std::error::Error;
use std::io;
use std::num::NonZeroUsize;
use std::time::Duration;

use engine::Store;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::worker::WorkerPool;
use crate::decide::{Handler, Readiness};
use crate::net::tls::PortTls;
use crate::net::{Admission, PortListener, UnfinishedBytes};

/// An error of any type: the gRPC server does not know the errors of a store.
pub type BoxError = Box<dyn Error + Send + Sync>;

#[derive(Clone, Copy, Debug)]
pub struct GrpcOptions {
    /// Threads, each with its own runtime, limiter and Redis store.
    pub workers: NonZeroUsize,
    /// The most decisions of a worker that may wait for its store at once; its connections share them equally. Further
    /// calls are held.
    pub decisions_at_once: NonZeroUsize,
    /// The longest time that a call is held.
    pub hold_at_most: Duration,
    /// The client of an older connection gets GOAWAY, so that load spreads to new processes; `None` = never.
    pub max_connection_age: Option<Duration>,
    /// Time limit for calls in flight after the listener is closed or a connection has got GOAWAY.
    pub finish_within: Duration,
}

/// The open calls of the process, shared equally by its workers. An open call takes some 2 KB.
const MAX_OPEN_CALLS: usize = 40_000;
/// A worker decides some 30,000 calls in a second.
const MAX_OPEN_CALLS_OF_WORKER: usize = 10_000;
/// Enough for all calls of two connections.
const MIN_OPEN_CALLS_OF_WORKER: usize = 2 * 1_024;

impl GrpcOptions {
    /// The most open calls of one worker.
    pub(super) fn max_open_calls(&self) -> usize {
        (MAX_OPEN_CALLS / self.workers).clamp(MIN_OPEN_CALLS_OF_WORKER, MAX_OPEN_CALLS_OF_WORKER)
    }
}

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

/// What [`serve`](super::serve) needs beside the listener. `make_context` is called once in each worker, on its
/// runtime.
#[derive(Debug)]
pub struct GrpcService<M> {
    pub options: GrpcOptions,
    pub readiness: Readiness,
    pub admission: Admission,
    /// `None`: clear text.
    pub tls: Option<PortTls>,
    /// Shared with the HTTP ports.
    pub unfinished: UnfinishedBytes,
    pub make_context: M,
}

/// What a worker needs to answer calls.
pub struct WorkerContext<S> {
    pub handler: Handler<S>,
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

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Arc;

    use tokio::net::TcpListener;

    use super::*;
    use crate::decide::limiter::{Limiter, Rulebook};
    use crate::decide::{Failures, OnInvalid, ResponseOptions};
    use crate::net::ConnectionBounds;
    use crate::telemetry::metrics::{Metrics, Port, Transport};
    use crate::telemetry::traces::Tracer;
    use engine::wire::Bounds;
    use engine::{Enforcement, RuleSet};
    use store::clock::SystemClock;
    use store::memory::{MemoryOptions, MemoryStore};

    type MakeContext = fn() -> Result<WorkerContext<MemoryStore>, BoxError>;

    fn service(make_context: MakeContext) -> GrpcService<MakeContext> {
        let options = GrpcOptions {
            workers: NonZeroUsize::MIN,
            decisions_at_once: NonZeroUsize::MIN,
            hold_at_most: Duration::ZERO,
            max_connection_age: None,
            finish_within: Duration::ZERO,
        };
        let metrics = Metrics::new(800_000).expect("metrics");
        let bounds = ConnectionBounds { total: 1, per_address: 1 };
        GrpcService {
            options,
            readiness: Readiness::not_ready(&[]),
            admission: Admission::new(Port::Grpc, bounds, metrics.connections(Port::Grpc)),
            tls: None,
            unfinished: UnfinishedBytes::new(0),
            make_context,
        }
    }

    async fn error_of(make_context: MakeContext) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let served =
            serve(PortListener::of_tcp(listener), service(make_context), CancellationToken::new()).await;
        served.expect_err("the server was not told to stop").to_string()
    }

    fn handler() -> Handler<MemoryStore> {
        let metrics = Metrics::new(800_000).expect("metrics");
        let rulebook = Arc::new(Rulebook::new(RuleSet::empty(), metrics.clone()));
        let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
        Handler {
            limiter: Limiter { rulebook, store, enforcement: Enforcement::Enforce },
            bounds: Bounds { max_descriptors: 1, max_entries: 1, max_value_bytes: 1 },
            max_message_bytes: 1,
            response: ResponseOptions::default(),
            meter: metrics.requests(Transport::Grpc),
            failures: Failures::new(metrics.requests(Transport::Grpc)),
            on_invalid: OnInvalid::default(),
            tracer: Tracer::default(),
        }
    }

    #[tokio::test]
    async fn a_worker_that_cannot_start_ends_the_service_with_the_reason() {
        let reason = error_of(|| Err("no store of paper".into())).await;
        assert_eq!(reason, "worker 0 ended: its store cannot be set up: no store of paper");
    }

    #[tokio::test]
    async fn a_worker_that_panics_ends_the_service() {
        let reason = error_of(|| panic!("as if by mistake")).await;
        assert_eq!(reason, "worker 0 ended: it panicked");
    }

    #[tokio::test]
    async fn a_store_whose_task_dies_ends_the_service_with_the_reason() {
        let reason = error_of(|| {
            let died = Box::pin(ready(BoxError::from("a batcher panicked")));
            Ok(WorkerContext { handler: handler(), close: Box::pin(ready(())), died })
        });
        assert_eq!(reason.await, "worker 0 ended: a task of its store died: a batcher panicked");
    }

    #[tokio::test]
    async fn a_service_whose_store_lives_ends_when_it_is_stopped() {
        let make_context = || {
            Ok(WorkerContext { handler: handler(), close: Box::pin(ready(())), died: Box::pin(pending()) })
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let stop = CancellationToken::new();
        stop.cancel();
        serve(PortListener::of_tcp(listener), service(make_context), stop)
            .await
            .expect("no worker ended by itself");
    }

    #[test]
    fn the_workers_share_the_open_calls_of_the_process() {
        // Workers, open calls of each.
        for (workers, open) in [(1, 10_000), (2, 10_000), (4, 10_000), (8, 5_000), (16, 2_500), (64, 2_048)] {
            let options = GrpcOptions {
                workers: NonZeroUsize::new(workers).expect("not 0"),
                decisions_at_once: NonZeroUsize::MIN,
                hold_at_most: Duration::ZERO,
                max_connection_age: None,
                finish_within: Duration::ZERO,
            };
            assert_eq!(options.max_open_calls(), open, "{workers} workers");
        }
    }
}
