//! A request in the queue, and why it got no answer. Knows nothing of which node should decide it.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::engine::StoreError;
use crate::store::redis::error::{CommandError, Redirect};
use crate::store::redis::script::{Answer, Encoded};

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) request: Encoded,
    pub(crate) mode: CallMode,
    /// After this nobody waits any more.
    pub(crate) deadline: Instant,
    pub(crate) answer: oneshot::Sender<Result<Answer, CallError>>,
}

/// What a request may share a script call with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallMode {
    /// With requests of the same slot, and without one with whatever goes to the same server.
    Batched(Option<u16>),
    /// With nothing.
    Single,
    /// With nothing, and of a server that does not have the slot yet.
    Asking,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// For good. Whether it was decided may not be known, so it is not to be sent again.
    Failed(StoreError),
    /// For now: it surely was not decided.
    NotExecuted(Box<NotExecuted>),
}

/// A request that was not decided.
#[derive(Debug)]
pub(crate) struct NotExecuted {
    pub(crate) request: Encoded,
    pub(crate) cause: Cause,
}

/// What kept a request from being decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It did not leave this process.
    NotSent(StoreError),
    /// The server has not, or not alone, what the request is about.
    Redirected(Redirect),
}

impl CallError {
    pub(crate) fn not_sent(request: Encoded, failure: StoreError) -> Self {
        Self::NotExecuted(Box::new(NotExecuted { request, cause: Cause::NotSent(failure) }))
    }

    pub(crate) fn redirected(request: Encoded, redirect: Redirect) -> Self {
        Self::NotExecuted(Box::new(NotExecuted { request, cause: Cause::Redirected(redirect) }))
    }
}

/// Where nobody else can be asked.
impl From<CallError> for StoreError {
    fn from(setback: CallError) -> Self {
        match setback {
            CallError::Failed(failure) => failure,
            CallError::NotExecuted(not_run) => match not_run.cause {
                Cause::NotSent(failure) => failure,
                Cause::Redirected(redirect) => redirect.into(),
            },
        }
    }
}

/// Gives everyone who shared a call what came of it.
pub(crate) fn hand_out(answer: Result<Vec<Answer>, CommandError>, jobs: Vec<Job>) {
    match answer {
        Ok(answers) => {
            for (job, answer) in jobs.into_iter().zip(answers) {
                deliver(job.answer, Ok(answer));
            }
        }
        Err(CommandError::Redirected { redirect, .. }) => {
            for Job { request, answer, .. } in jobs {
                deliver(answer, Err(CallError::redirected(request, redirect.clone())));
            }
        }
        Err(failure) => {
            let failure = StoreError::from(failure);
            for job in jobs {
                deliver(job.answer, Err(CallError::Failed(failure.clone())));
            }
        }
    }
}

/// Tells them that they have not been sent.
pub(super) fn turn_away(jobs: Vec<Job>, failure: &StoreError) {
    for Job { request, answer, .. } in jobs {
        deliver(answer, Err(CallError::not_sent(request, failure.clone())));
    }
}

pub(super) fn deliver(to: oneshot::Sender<Result<Answer, CallError>>, answer: Result<Answer, CallError>) {
    // A caller who has gone does not want it.
    drop(to.send(answer));
}
