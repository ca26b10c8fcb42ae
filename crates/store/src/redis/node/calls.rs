//! The queued requests of a node, and the script calls of a batch: one call per slot, all sent in one round trip, each
//! with its own result. A standalone server does not have slots, so a batch is one call.

use engine::StoreError;
use redis::{Cmd, Pipeline};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::redis::connect::Connection;
use crate::redis::error::{CommandError, Redirect};
use crate::redis::script::{BatchPlan, EncodedRequest, RequestReply, ScriptRef, When};

/// The counters of a batch are hot if it has on average at least this many requests per bundle sent.
const REQUESTS_FOR_HOT_COUNTER: usize = 4;

#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) encoded: EncodedRequest,
    pub(super) mode: CallMode,
    /// When the caller stops waiting.
    pub(super) deadline: Instant,
    pub(super) reply: oneshot::Sender<Result<RequestReply, CallError>>,
}

/// Which requests may share a script call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallMode {
    /// Requests with the same slot; `None` on a server without slots.
    Batched(Option<u16>),
    /// The request has a call of its own.
    Single,
    /// Like `Single`, after `ASKING`: the slot is migrating to this node.
    Asking,
}

#[derive(Debug)]
pub(crate) enum CallError {
    /// The request may have been decided: do not send it again.
    Failed(StoreError),
    /// The request was not decided: it can be sent again, also to another node.
    NotExecuted(Box<NotExecuted>),
}

#[derive(Debug)]
pub(crate) struct NotExecuted {
    pub(crate) request: EncodedRequest,
    pub(crate) cause: Cause,
}

/// Why a request was not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    NotSent(StoreError),
    /// The node refused it because it does not serve the slot alone.
    Redirected(Redirect),
}

impl QueuedRequest {
    /// `true` if the caller stopped waiting before the deadline.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    pub(super) fn answer(self, answer: Result<RequestReply, CallError>) {
        // Fails only if the caller is gone.
        drop(self.reply.send(answer));
    }

    /// Tells the caller that the request was not executed.
    fn not_executed(self, cause: Cause) {
        let not_executed = NotExecuted { request: self.encoded, cause };
        // Fails only if the caller is gone.
        drop(self.reply.send(Err(CallError::NotExecuted(Box::new(not_executed)))));
    }
}

/// Answers callers that their requests were not sent.
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

/// For a caller without another node to try.
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

/// Requests that share one script call.
struct ScriptCall {
    /// In order of arrival.
    requests: Vec<QueuedRequest>,
    plan: BatchPlan,
}

pub(super) struct FinishedCall {
    call: ScriptCall,
    result: CallResult,
}

type CallResult = Result<Vec<RequestReply>, CommandError>;

/// The calls of a batch; one on a standalone server.
pub(super) type FinishedCalls = SmallVec<[FinishedCall; 1]>;

type Numbers = Result<Vec<i64>, CommandError>;

impl ScriptCall {
    fn new(requests: Vec<QueuedRequest>) -> Self {
        let plan = BatchPlan::new(requests.iter().map(|request| &request.encoded));
        Self { requests, plan }
    }

    /// `true` if the script needs commands for lists or sorted sets for it.
    fn needs_more_commands(&self) -> bool {
        self.encoded().any(EncodedRequest::needs_more_commands)
    }

    fn encoded(&self) -> impl Iterator<Item = &EncodedRequest> + Clone {
        self.requests.iter().map(|request| &request.encoded)
    }

    /// Requests of the same slot share a call; in any other mode a request has a call of its own.
    fn mode(&self) -> CallMode {
        self.requests[0].mode
    }

    fn command(&self, script: ScriptRef) -> Cmd {
        self.plan.command(self.encoded(), When::Now, script)
    }

    /// Splits the integers into answers. A reply of the wrong shape breaks the connection: the next reply may belong to
    /// another call.
    fn result(&self, numbers: Numbers, connection: &mut Connection) -> CallResult {
        self.plan.split_reply(self.encoded(), &numbers?).map_err(|malformed| {
            connection.mark_broken();
            CommandError::Failed(malformed)
        })
    }
}

impl FinishedCall {
    /// `true` if the server did not have the script, and so executed nothing.
    fn met_noscript(&self) -> bool {
        matches!(self.result, Err(CommandError::NoScript))
    }

    /// `true` if the server refused a call with a log or slots: the user may lack their commands.
    fn met_forbidden_log(&self) -> bool {
        matches!(self.result, Err(CommandError::Failed(StoreError::Forbidden(_))))
            && self.call.needs_more_commands()
    }
}

/// Sends a batch of at least one request, and waits for the results until `deadline`. If `logs_apart`, requests to
/// sliding logs have their own calls, see [`are_logs_apart`].
pub(super) async fn send(
    connection: &mut Connection,
    requests: Vec<QueuedRequest>,
    deadline: Instant,
    logs_apart: bool,
) -> FinishedCalls {
    let calls = split_into_calls(requests, logs_apart);
    let results = {
        let sent: SmallVec<[&ScriptCall; 1]> = calls.iter().collect();
        round_trip(connection, &sent, ScriptRef::Sha1, deadline).await
    };
    let mut finished: FinishedCalls =
        calls.into_iter().zip(results).map(|(call, result)| FinishedCall { call, result }).collect();
    // NOSCRIPT: the server was restarted or flushed. The script did not run, so this single retry decides nothing
    // twice.
    if finished.iter().any(FinishedCall::met_noscript) {
        repeat_with_text(connection, &mut finished, deadline).await;
    }
    finished
}

/// Repeats the calls that failed with NOSCRIPT, sending the script's source.
async fn repeat_with_text(connection: &mut Connection, finished: &mut FinishedCalls, deadline: Instant) {
    let repeated: Vec<&ScriptCall> =
        finished.iter().filter(|call| call.met_noscript()).map(|finished| &finished.call).collect();
    let results = round_trip(connection, &repeated, ScriptRef::Text, deadline).await;
    for (finished, result) in finished.iter_mut().filter(|call| call.met_noscript()).zip(results) {
        finished.result = result;
    }
}

/// Healthy unless every call failed. A healthy cluster node can answer with a redirect; without slots there is no other
/// server, and it is a failure. A refused call with a log is ignored, because other requests may be permitted. `None`
/// if there is no other call.
pub(super) fn health(calls: &[FinishedCall]) -> Option<Result<(), &StoreError>> {
    let mut health = None;
    for finished in calls {
        let FinishedCall { call, result } = finished;
        match result {
            _ if finished.met_forbidden_log() => {}
            Err(CommandError::Failed(error)) => health = Some(Err(error)),
            Err(CommandError::Redirected { error, .. }) if call.mode() == CallMode::Batched(None) => {
                health = Some(Err(error));
            }
            _ => return Some(Ok(())),
        }
    }
    health
}

/// `true` if requests to sliding logs need their own calls after these calls. A script error fails the whole call, and
/// a user without the list commands gets one for each call with a log. `before`: the last return value.
pub(super) fn are_logs_apart(calls: &[FinishedCall], before: bool) -> bool {
    let is_permitted = || calls.iter().any(|call| call.result.is_ok() && call.call.needs_more_commands());
    calls.iter().any(FinishedCall::met_forbidden_log) || before && !is_permitted()
}

/// `true` if the batch's counters are hot; `None` if the batch is too small to tell.
pub(super) fn are_hot(calls: &[FinishedCall]) -> Option<bool> {
    let sizes = calls.iter().map(|FinishedCall { call, .. }| (call.requests.len(), call.plan.bundles()));
    let (requests, bundles) = sizes.fold((0, 0), |(requests, bundles), (of_call, sent)| {
        (requests + of_call, bundles + sent.unwrap_or(of_call))
    });
    (requests >= REQUESTS_FOR_HOT_COUNTER).then_some(bundles * REQUESTS_FOR_HOT_COUNTER <= requests)
}

pub(super) fn answer_calls(calls: FinishedCalls) {
    for FinishedCall { call: ScriptCall { requests, .. }, result } in calls {
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
}

/// Splits a batch by slot, keeping the order within a call. If `logs_apart`, the requests to logs have a second call.
fn split_into_calls(requests: Vec<QueuedRequest>, logs_apart: bool) -> SmallVec<[ScriptCall; 1]> {
    let is_batched = |request: &QueuedRequest| matches!(request.mode, CallMode::Batched(_));
    let is_apart = |request: &QueuedRequest| logs_apart && request.encoded.needs_more_commands();
    let share_call = |one: &QueuedRequest, other: &QueuedRequest| {
        one.mode == other.mode && is_apart(one) == is_apart(other)
    };
    // Usually there is one call. A standalone server rarely has another.
    if requests.iter().all(|request| is_batched(request) && share_call(request, &requests[0])) {
        return SmallVec::from_iter([ScriptCall::new(requests)]);
    }
    let (mut batched, others): (Vec<_>, Vec<_>) = requests.into_iter().partition(is_batched);
    let slot = |request: &QueuedRequest| if let CallMode::Batched(slot) = request.mode { slot } else { None };
    batched.sort_by_key(|request| (slot(request), is_apart(request)));
    let mut calls: Vec<Vec<QueuedRequest>> = Vec::new();
    for request in batched {
        match calls.last_mut() {
            Some(requests) if share_call(&requests[0], &request) => requests.push(request),
            _ => calls.push(vec![request]),
        }
    }
    calls.extend(others.into_iter().map(|request| vec![request]));
    calls.into_iter().map(ScriptCall::new).collect()
}

/// Sends calls, and returns one result per call.
async fn round_trip(
    connection: &mut Connection,
    calls: &[&ScriptCall],
    script: ScriptRef,
    deadline: Instant,
) -> SmallVec<[CallResult; 1]> {
    if let &[call] = calls
        && call.mode() != CallMode::Asking
    {
        let numbers = connection.query(&call.command(script), deadline).await;
        return SmallVec::from_iter([call.result(numbers, connection)]);
    }
    let replies = query_calls(connection, calls, script, deadline).await;
    calls.iter().zip(replies).map(|(call, numbers)| call.result(numbers, connection)).collect()
}

/// Sends calls as one pipeline, and returns one reply per call.
async fn query_calls(
    connection: &mut Connection,
    calls: &[&ScriptCall],
    script: ScriptRef,
    deadline: Instant,
) -> Vec<Numbers> {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    pipeline.ignore_errors();
    for call in calls {
        if call.mode() == CallMode::Asking {
            pipeline.cmd("ASKING").ignore();
        }
        pipeline.add_command(call.command(script));
    }
    let failure = match connection.query_each(&pipeline, deadline).await {
        Ok(results) if results.len() == calls.len() => return results,
        Ok(_) => StoreError::Malformed("not one answer for each call".to_owned()),
        Err(error) => error.into(),
    };
    calls.iter().map(|_| Err(CommandError::Failed(failure.clone()))).collect()
}
