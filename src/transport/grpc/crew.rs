//! The workers as a whole: started together, watched, asked to stop together, joined.

use std::thread::{self, JoinHandle};

use futures_util::future::select_all;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic_health::server::HealthReporter;

use super::dealer::Dealer;
use super::worker::{Worker, WorkerError};
use super::{BoxError, GrpcError, GrpcService, Rls};
use crate::engine::Store;

/// How a worker ended: with its report, or without one because it panicked.
type Ended = Result<Result<(), WorkerError>, oneshot::error::RecvError>;

/// All workers. They are asked to stop when this is dropped.
#[derive(Debug)]
pub(super) struct Crew {
    members: Vec<Member>,
    stop: DropGuard,
}

#[derive(Debug)]
struct Member {
    place: usize,
    ended: oneshot::Receiver<Result<(), WorkerError>>,
    thread: Option<JoinHandle<()>>,
}

impl Crew {
    /// Starts every worker, each waiting for what the dealer hands it.
    pub(super) fn start<M, S>(
        service: &GrpcService<M>,
        health: &HealthReporter,
    ) -> Result<(Self, Dealer), GrpcError>
    where
        M: Fn() -> Result<Rls<S>, BoxError> + Clone + Send + 'static,
        S: Store + 'static,
    {
        let stop = CancellationToken::new();
        let mut dealer = Dealer::default();
        let start = |place| {
            let worker = Worker {
                make_rls: service.make_rls.clone(),
                options: service.options,
                health: health.clone(),
                connections: dealer.join(),
                stop: stop.clone(),
            };
            Member::start(place, worker)
        };
        let members = (0..service.options.workers.get()).map(start).collect::<Result<_, _>>()?;
        let stop = stop.drop_guard();
        Ok((Self { members, stop }, dealer))
    }

    /// Waits for a worker to end that was not asked to.
    pub(super) async fn first_to_end(&mut self) -> GrpcError {
        let (ended, place, _) = select_all(self.members.iter_mut().map(|member| &mut member.ended)).await;
        self.members[place].why(ended)
    }

    /// Asks all workers to stop and waits until they have.
    pub(super) async fn finish(self) -> Result<(), GrpcError> {
        drop(self.stop);
        for mut member in self.members {
            let ended = (&mut member.ended).await;
            if !matches!(ended, Ok(Ok(()))) {
                return Err(member.why(ended));
            }
            member.join();
        }
        Ok(())
    }
}

impl Member {
    fn start<M, S>(place: usize, worker: Worker<M>) -> Result<Self, GrpcError>
    where
        M: Fn() -> Result<Rls<S>, BoxError> + Send + 'static,
        S: Store + 'static,
    {
        let (report, ended) = oneshot::channel();
        let work = move || {
            // Nobody listens only when the whole service has been dropped, and then nobody asks either.
            let _ = report.send(worker.run());
        };
        let thread = thread::Builder::new()
            .name(format!("grpc-{place}"))
            .spawn(work)
            .map_err(|cause| GrpcError::Thread { place, cause })?;
        let thread = Some(thread);
        Ok(Self { place, ended, thread })
    }

    /// Why it ended although it was not asked to.
    fn why(&mut self, ended: Ended) -> GrpcError {
        let cause: BoxError = match ended {
            Ok(Ok(())) => "it was not asked to".into(),
            Ok(Err(error)) => error.into(),
            Err(_) => "it panicked".into(),
        };
        self.join();
        GrpcError::Worker { place: self.place, cause }
    }

    /// Returns at once: the thread has nothing left to do once it has reported.
    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic is known by then: the report is missing.
            let _ = thread.join();
        }
    }
}
