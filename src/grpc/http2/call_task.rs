//! A call that has to wait, for its message, its decision or its client: a task. Only streams have no time limit.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use h2::server::SendResponse;
use http::Response;
use hyper::body::Bytes;
use tokio::time::timeout;
use tonic::Status;

use super::answering::{UntakenMessage, send_answer, send_response};
use super::calls::Answer;
use crate::grpc::open_calls::{OpenCall, UndecidedCall};
use crate::grpc::stream_body::StreamBody;

/// For a decision, from the headers of the call; then for the client to take the answer. For a unary call of tonic's
/// services, from its headers to its end. More than the time for a message to arrive (2 s) and the longest
/// `store.redis.timeout` (10 s) together.
pub(in crate::grpc) const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Waits for an answer at most for `time_limit`, and sends it. Ends when the client resets the call; the decision is
/// then dropped.
pub(super) fn spawn_decision<A>(
    mut respond: SendResponse<Bytes>,
    answer: A,
    time_limit: Duration,
    undecided: UndecidedCall,
    open: OpenCall,
) where
    A: Future<Output = Answer> + Send + 'static,
{
    spawn_call(async move {
        let answer = match timeout(time_limit, unless_reset(&mut respond, answer)).await {
            Ok(None) => return,
            Ok(Some(answer)) => answer,
            Err(_) => late(&open),
        };
        drop(undecided);
        // In a task of its own: it is seldom needed, and would make the task of every call larger.
        if let Some(untaken) = send_answer(&mut respond, answer) {
            spawn_rest(untaken, open);
        }
    });
}

/// The answer to a call that was not decided within its time limit.
pub(super) fn late(open: &OpenCall) -> Answer {
    open.record_late();
    Answer::Refusal(Status::deadline_exceeded("the time of the call is over"))
}

/// Sends the rest of an answer.
pub(super) fn spawn_rest(untaken: UntakenMessage, open: OpenCall) {
    spawn_call(async move { in_time(untaken.send_rest(), &open).await });
}

/// Waits for the response of one of tonic's services, and sends it.
pub(super) fn spawn_routed<R>(mut respond: SendResponse<Bytes>, response: R, is_stream: bool, open: OpenCall)
where
    R: Future<Output = Response<StreamBody>> + Send + 'static,
{
    spawn_call(async move {
        // A stream has its response as soon as its first message has arrived.
        let Ok(response) = timeout(CALL_TIMEOUT, unless_reset(&mut respond, response)).await else {
            return open.record_untaken();
        };
        let Some(response) = response else { return };
        let sent = send_response(respond, response);
        if is_stream { sent.await } else { in_time(sent, &open).await }
    });
}

/// The call is in a box, so that its task is small. tokio moves a task several times, and aligns it to 128 bytes: with
/// a box the task has 128 bytes, a size for which mimalloc needs no search for an aligned address.
fn spawn_call(call: impl Future<Output = ()> + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "a call ends with its connection, which is joined")]
    tokio::spawn(Box::pin(call));
}

/// Ends early when the time is over: dropping the call resets its stream.
async fn in_time(call: impl Future<Output = ()>, open: &OpenCall) {
    if timeout(CALL_TIMEOUT, call).await.is_err() {
        open.record_untaken();
    }
}

/// Waits for `answer`; `None` if the client resets its call meanwhile.
async fn unless_reset<A: Future>(respond: &mut SendResponse<Bytes>, answer: A) -> Option<A::Output> {
    let mut answer = pin!(answer);
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => respond.poll_reset(cx).map(|_| None),
    })
    .await
}
