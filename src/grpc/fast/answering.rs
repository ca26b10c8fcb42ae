//! Sends the answers of decision calls. A ready answer is sent immediately, as far as the client's window allows. A
//! call that has to wait, for its message, its decision or its client, becomes a task.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use engine::{Charges, Decision};
use futures_util::future::BoxFuture;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use hyper::body::Bytes;
use prost::Message;
use prost::bytes::{BufMut as _, BytesMut};
use tokio::time::timeout;
use tonic::Status;

use super::message::PREFIX_BYTES;
use super::open_calls::{ConnectionCounts, OpenCall, PendingDecision};
use crate::decide::{Answer, NoDecision};
use crate::grpc::head::CALL_TIMEOUT;
use crate::grpc::pb::envoy::service::ratelimit::v3::RateLimitResponse;
use crate::telemetry::metrics::RequestFailure;

pub(super) const DEADLINE: NoDecision = NoDecision::refused(RequestFailure::Deadline, "deadline exceeded");
pub(super) const UNTAKEN: NoDecision =
    NoDecision::refused(RequestFailure::Untaken, "the client does not read the answer");

/// The answer to a decision call.
pub(super) enum Reply {
    /// An answer with its prefix; the gRPC status is OK.
    Message(Bytes),
    /// A message, and charges that release its slots if it does not arrive.
    WithSlots(Box<(Bytes, Charges)>),
    /// The HTTP status is OK, except for clients that do not speak gRPC.
    Refusal(StatusCode, Status),
}

impl From<Answer<'_>> for Reply {
    fn from(answer: Answer<'_>) -> Self {
        let decision = answer.decision;
        let message = encode(&RateLimitResponse::from(answer));
        match decision.and_then(Decision::release_of_slots) {
            None => Self::Message(message),
            Some(release) => Self::WithSlots(Box::new((message, release))),
        }
    }
}

impl Reply {
    pub(super) fn of(answer: impl Message) -> Self {
        Self::Message(encode(&answer))
    }
}

impl From<NoDecision> for Reply {
    fn from(error: NoDecision) -> Self {
        Self::Refusal(StatusCode::OK, error.into())
    }
}

/// Waits for a reply for at most `time_limit`, and sends it. Ends when the client resets the call; the decision is then
/// dropped.
pub(super) fn spawn_decision(
    mut respond: SendResponse<Bytes>,
    reply: BoxFuture<'static, Reply>,
    time_limit: Duration,
    pending: PendingDecision,
    open: OpenCall,
) {
    spawn_call(async move {
        let reply = match timeout(time_limit, unless_reset(&mut respond, reply)).await {
            Ok(None) => return,
            Ok(Some(reply)) => reply,
            Err(_) => open.counts.record(DEADLINE).into(),
        };
        drop(pending);
        send(respond, reply, &open.counts);
    });
}

/// Sends a reply. If the client does not take all of it, a separate task sends the rest, and counts as an open call.
/// Such a client is rare, and waiting for it here would enlarge every call's task.
pub(super) fn send(mut respond: SendResponse<Bytes>, reply: Reply, counts: &Arc<ConnectionCounts>) {
    let blocked = match reply {
        Reply::Message(message) => send_message(&mut respond, message),
        Reply::WithSlots(answer) => return send_with_slots(respond, *answer, counts),
        Reply::Refusal(code, status) => {
            let mut head = status.into_http();
            *head.status_mut() = code;
            drop(send_head(&mut respond, head, true));
            None
        }
    };
    if let Some(blocked) = blocked {
        let open = counts.count_open_call();
        spawn_call(async move {
            in_time(blocked.send_rest(), &open).await;
        });
    }
}

/// Sends an answer, and releases its slots if the client reset the call.
#[cold]
fn send_with_slots(
    mut respond: SendResponse<Bytes>,
    (message, release): (Bytes, Charges),
    counts: &Arc<ConnectionCounts>,
) {
    let stream = respond.stream_id();
    counts.slot_answers.remember(stream, release);
    if let Some(blocked) = send_message(&mut respond, message) {
        let open = counts.count_open_call();
        spawn_call(async move {
            if in_time(blocked.send_rest(), &open).await != Some(true) {
                open.counts.slot_answers.release(stream);
            }
        });
    } else if respond.poll_reset(&mut Context::from_waker(Waker::noop())).is_ready() {
        counts.slot_answers.release(stream);
    }
}

/// Runs a call that has to wait as its own task.
///
/// The future is boxed, because tokio moves a task several times, and aligns it to 128 bytes. The task of a boxed
/// future has exactly 128 bytes: moves are cheap, and mimalloc need not search for an aligned address.
pub(super) fn spawn_call(call: impl Future<Output = ()> + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "a call ends with its connection, which is joined")]
    tokio::spawn(Box::pin(call));
}

/// Ends the call when its time is up: dropping it resets its stream.
pub(super) async fn in_time<T>(call: impl Future<Output = T>, open: &OpenCall) -> Option<T> {
    let ended = timeout(CALL_TIMEOUT, call).await.ok();
    if ended.is_none() {
        drop(open.counts.record(UNTAKEN));
    }
    ended
}

/// Waits for `answer`; `None` if the client resets its call first.
pub(super) async fn unless_reset<A: Future>(
    respond: &mut SendResponse<Bytes>,
    answer: A,
) -> Option<A::Output> {
    let mut answer = pin!(answer);
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => respond.poll_reset(cx).map(|_| None),
    })
    .await
}

/// Encodes an answer with its prefix.
fn encode(answer: &impl Message) -> Bytes {
    let length = answer.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
    // Flag: not compressed.
    bytes.put_u8(0);
    // An answer has a few hundred bytes per descriptor, so it is far below 4 GiB.
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    answer.encode_raw(&mut bytes);
    bytes.freeze()
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// An answer whose headers are sent, but whose message does not fit into the client's window.
struct BlockedAnswer {
    stream: SendStream<Bytes>,
    message: Bytes,
}

/// Sends an answer. Returns what does not fit into the client's window.
fn send_message(respond: &mut SendResponse<Bytes>, message: Bytes) -> Option<BlockedAnswer> {
    let mut stream = send_head(respond, ok_head(), false)?;
    stream.reserve_capacity(message.len());
    if stream.capacity() < message.len() {
        return Some(BlockedAnswer { stream, message });
    }
    if let Err(error) = stream.send_data(message, false).and_then(|()| send_ok(&mut stream)) {
        tracing::debug!(%error, "cannot send a response");
    }
    None
}

impl BlockedAnswer {
    /// `true` if HTTP/2 accepted the whole answer.
    async fn send_rest(mut self) -> bool {
        let sent = send_data(&mut self.stream, self.message).await;
        let sent = sent.and_then(|()| send_ok(&mut self.stream));
        if let Err(error) = &sent {
            tracing::debug!(%error, "cannot send a response");
        }
        sent.is_ok()
    }
}

/// `None` if the client has reset the call, or h2 refuses the headers.
pub(super) fn send_head(
    respond: &mut SendResponse<Bytes>,
    head: Response<()>,
    is_last: bool,
) -> Option<SendStream<Bytes>> {
    match respond.send_response(head, is_last) {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::debug!(%error, "cannot send a response");
            respond.send_reset(Reason::INTERNAL_ERROR);
            None
        }
    }
}

fn ok_head() -> Response<()> {
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    head
}

/// Ends a stream with the status OK.
fn send_ok(stream: &mut SendStream<Bytes>) -> Result<(), h2::Error> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    stream.send_trailers(trailers)
}

/// Sends all of `data`, in parts if the windows require it.
///
/// # Errors
/// If the client has reset the call, or the connection has ended.
pub(super) async fn send_data(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let admitted = poll_fn(|cx| poll_admitted(stream, cx)).await?;
        stream.send_data(data.split_to(admitted.min(data.len())), false)?;
    }
    Ok(())
}

/// Returns the bytes that the windows allow, at least 1.
fn poll_admitted(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<Result<usize, h2::Error>> {
    loop {
        let admitted = stream.capacity();
        if admitted > 0 {
            return Poll::Ready(Ok(admitted));
        }
        match ready!(stream.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(Err(error)),
            None => return Poll::Ready(Err(Reason::CANCEL.into())),
        }
    }
}
