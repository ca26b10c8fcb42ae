//! A request in the queue of a node, and the reasons why a request has no answer. Knows nothing of which node should
//! decide it.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::Instant;

use crate::engine::StoreError;
use crate::store::redis::error::{CommandError, Redirect};
use crate::store::redis::script::{Answer, Encoded};

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Encoded,
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
    pub(crate) request: Encoded,
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

impl Job {
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
        let not_executed = NotExecuted { request: self.request, cause };
        // It fails only when the caller is gone.
        drop(self.reply.send(Err(CallError::NotExecuted(Box::new(not_executed)))));
    }
}

/// After this many answers other tasks of the worker run. Each answer makes a task ready: if all of a large batch did
/// at once, a request that has just arrived would wait for all of them.
const ANSWERS_AT_ONCE: usize = 64;
/// Callers whose deadline is nearer are answered without such pauses.
const LEAST_TIME_LEFT: Duration = Duration::from_millis(2);

/// How the requests of a batch are answered: in parts, as long as none is near its deadline.
pub(super) struct AnswerPace {
    first_deadline: Option<Instant>,
    left: usize,
}

impl AnswerPace {
    pub(super) fn new<'j>(jobs: impl Iterator<Item = &'j Job>) -> Self {
        Self { first_deadline: jobs.map(|job| job.deadline).min(), left: ANSWERS_AT_ONCE }
    }

    /// Waits for the turn of the next answer.
    async fn turn(&mut self) {
        if self.left == 0 {
            self.left = ANSWERS_AT_ONCE;
            if self.first_deadline.is_some_and(|first| Instant::now() + LEAST_TIME_LEFT < first) {
                yield_now().await;
            }
        }
        self.left -= 1;
    }
}

/// Answers the requests of one script call, in their order.
pub(super) async fn answer_all(
    jobs: Vec<Job>,
    result: Result<Vec<Answer>, CommandError>,
    pace: &mut AnswerPace,
) {
    match result {
        Ok(answers) => {
            for (job, answer) in jobs.into_iter().zip(answers) {
                pace.turn().await;
                job.answer(Ok(answer));
            }
        }
        Err(CommandError::Redirected { redirect, .. }) => {
            for job in jobs {
                pace.turn().await;
                job.not_executed(Cause::Redirected(redirect.clone()));
            }
        }
        Err(error) => {
            let failure = StoreError::from(error);
            for job in jobs {
                pace.turn().await;
                job.answer(Err(CallError::Failed(failure.clone())));
            }
        }
    }
}

/// Tells callers that their requests were not sent.
pub(super) fn fail_unsent(jobs: Vec<Job>, failure: &StoreError) {
    for job in jobs {
        job.not_executed(Cause::NotSent(failure.clone()));
    }
}

impl CallError {
    pub(super) fn not_sent(request: Encoded, failure: StoreError) -> Self {
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// How many of 100 requests of a call are answered by the first poll, if each has so much time left.
    async fn answered_at_once(time_left: Duration) -> usize {
        let deadline = Instant::now() + time_left;
        let (jobs, mut replies): (Vec<_>, Vec<_>) = std::iter::repeat_with(|| {
            let (reply, answer) = oneshot::channel();
            let request = Encoded::reset("k", "");
            (Job { request, mode: CallMode::Batched(None), deadline, reply }, answer)
        })
        .take(100)
        .unzip();
        let mut pace = AnswerPace::new(jobs.iter());
        let failed = Err(CommandError::Failed(StoreError::Timeout));
        let mut answering = Box::pin(answer_all(jobs, failed, &mut pace));
        let ended = (&mut answering).now_or_never().is_some();
        let answered = replies.iter_mut().filter_map(|reply| reply.try_recv().ok()).count();
        if !ended {
            answering.await;
        }
        let later = replies.iter_mut().filter_map(|reply| reply.try_recv().ok()).count();
        assert_eq!(answered + later, 100, "each request has one answer");
        answered
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_batch_is_answered_in_parts_unless_a_deadline_is_near() {
        assert_eq!(answered_at_once(Duration::from_secs(1)).await, ANSWERS_AT_ONCE);
        assert_eq!(answered_at_once(LEAST_TIME_LEFT).await, 100);
    }
}
