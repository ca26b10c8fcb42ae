//! A request in the queue of a node, and the reasons why a request has no answer. Knows nothing of which node should
//! decide it.

use engine::StoreError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::redis::error::{CommandError, Redirect};
use crate::redis::script::{Answer, EncodedRequest};

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) encoded: EncodedRequest,
    pub(super) mode: CallMode,
    /// The caller stops waiting at this time.
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<Answer, CallError>>,
}

/// Which requests may share a script call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallMode {
    /// Requests with the same slot; `None` on a server without slots.
    Batched(Option<u16>),
    /// The request has a call of its own.
    Single,
    /// The same, after `ASKING`: the slot is migrating to this node.
    Asking,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The request may have been decided: it must not be sent again.
    Failed(StoreError),
    /// The request was not decided: it may be sent again, also to another node.
    NotExecuted(Box<NotExecuted>),
}

/// A request that was not decided.
#[derive(Debug)]
pub(crate) struct NotExecuted {
    pub(crate) request: EncodedRequest,
    pub(crate) cause: Cause,
}

/// Why a request was not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It was not sent.
    NotSent(StoreError),
    /// The node refused it, because it does not serve the slot alone.
    Redirected(Redirect),
}

impl QueuedRequest {
    /// Whether the caller stopped waiting before the deadline.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    /// Answers the caller.
    pub(super) fn answer(self, answer: Result<Answer, CallError>) {
        // It fails only when the caller is gone.
        drop(self.reply.send(answer));
    }

    /// Tells the caller that the request was not executed.
    fn not_executed(self, cause: Cause) {
        let not_executed = NotExecuted { request: self.encoded, cause };
        // It fails only when the caller is gone.
        drop(self.reply.send(Err(CallError::NotExecuted(Box::new(not_executed)))));
    }
}

/// Answers the requests of one script call.
pub(super) fn answer_all(requests: Vec<QueuedRequest>, result: Result<Vec<Answer>, CommandError>) {
    match result {
        Ok(answers) => {
            for (request, answer) in requests.into_iter().zip(answers) {
                request.answer(Ok(answer));
            }
        }
        Err(CommandError::Redirected { redirect, .. }) => {
            for request in requests {
                request.not_executed(Cause::Redirected(redirect.clone()));
            }
        }
        Err(error) => {
            let failure = StoreError::from(error);
            for request in requests {
                request.answer(Err(CallError::Failed(failure.clone())));
            }
        }
    }
}

/// Tells callers that their requests were not sent.
pub(super) fn fail_unsent(requests: Vec<QueuedRequest>, failure: &StoreError) {
    for request in requests {
        request.not_executed(Cause::NotSent(failure.clone()));
    }
}

impl CallError {
    pub(super) fn not_sent(request: EncodedRequest, failure: StoreError) -> Self {
        Self::NotExecuted(Box::new(NotExecuted { request, cause: Cause::NotSent(failure) }))
    }
}

/// For callers without another node to ask.
impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Failed(failure) => failure,
            CallError::NotExecuted(not_executed) => match not_executed.cause {
                Cause::NotSent(failure) => failure,
                Cause::Redirected(redirect) => redirect.into(),
            },
        }
    }
}
