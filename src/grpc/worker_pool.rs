//! All workers: started together, watched, stopped together, joined.

use std::thread::{self, JoinHandle};

use engine::Store;
use futures_util::future::select_all;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::acceptor::Acceptor;
use super::open_streams::OpenStreams;
use super::service::{BoxError, GrpcError, GrpcService, WorkerContext};
use super::worker::{Worker, WorkerError};

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
    /// Starts every worker. The returned acceptor gives them connections.
    pub(super) fn start<M, S>(service: &GrpcService<M>) -> Result<(Self, Acceptor), GrpcError>
    where
        M: Fn() -> Result<WorkerContext<S>, BoxError> + Clone + Send + 'static,
        S: Store + 'static,
    {
        let stop = CancellationToken::new();
        let (mut acceptor, streams) = (Acceptor::default(), OpenStreams::default());
        let start = |index| {
            let worker = Worker {
                make_context: service.make_context.clone(),
                options: service.options,
                readiness: service.readiness.clone(),
                unfinished: service.unfinished.clone(),
                streams: streams.clone(),
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
    pub(super) async fn first_to_end(&mut self) -> GrpcError {
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

    /// Does not block: the thread ends with its report.
    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic is known already: the report is missing.
            let _ = thread.join();
        }
    }
}
