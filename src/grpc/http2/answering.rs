//! Sends answers. A decision that is ready is sent at once, as far as the client's window admits it. A call that has to
//! wait, for its message, its decision or its client, becomes a task. Only streams have no time limit.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::BoxFuture;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes};
use tokio::time::timeout;

use crate::decide::NoDecision;
use crate::grpc::call::Reply;
use crate::grpc::call_head::CALL_TIMEOUT;
use crate::grpc::open_calls::{OpenCall, PendingDecision};
use crate::grpc::other_services::StreamBody;

/// Waits for a reply, for at most `time_limit`, and sends it. Ends when the client resets the call; the decision is
/// then dropped.
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
            Err(_) => late(&open),
        };
        drop(pending);
        send(respond, reply, || open);
    });
}

/// The reply to a call that was not decided within its time limit.
pub(super) fn late(open: &OpenCall) -> Reply {
    open.record(NoDecision::Deadline).into()
}

/// Sends a reply. A separate task, counted by `open`, sends what the client does not take yet. Such a client is rare,
/// and waiting for it here would make the task of every call larger.
pub(super) fn send(mut respond: SendResponse<Bytes>, reply: Reply, open: impl FnOnce() -> OpenCall) {
    if let Some(blocked) = send_reply(&mut respond, reply) {
        let open = open();
        spawn_call(async move { in_time(blocked.send_rest(), &open).await });
    }
}

/// Waits for the response of one of tonic's services, and sends it.
pub(super) fn spawn_routed(
    mut respond: SendResponse<Bytes>,
    response: BoxFuture<'static, Response<StreamBody>>,
    is_stream: bool,
    open: OpenCall,
) {
    spawn_call(async move {
        // A stream has its response as soon as its first message has arrived.
        let Ok(response) = timeout(CALL_TIMEOUT, unless_reset(&mut respond, response)).await else {
            return drop(open.record(NoDecision::Untaken));
        };
        let Some(response) = response else { return };
        let sent = send_response(respond, response);
        if is_stream { sent.await } else { in_time(sent, &open).await }
    });
}

/// The call is boxed, so that its task is small. tokio moves a task several times, and aligns it to 128 bytes. With a
/// box the task has 128 bytes, and for this size mimalloc need not search for an aligned address.
fn spawn_call(call: impl Future<Output = ()> + Send + 'static) {
    #[expect(clippy::disallowed_methods, reason = "a call ends with its connection, which is joined")]
    tokio::spawn(Box::pin(call));
}

/// Ends the call when its time is over: dropping it resets its stream.
async fn in_time(call: impl Future<Output = ()>, open: &OpenCall) {
    if timeout(CALL_TIMEOUT, call).await.is_err() {
        drop(open.record(NoDecision::Untaken));
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

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// An answer whose headers are sent, and whose message does not fit into the client's window.
struct BlockedAnswer {
    stream: SendStream<Bytes>,
    message: Bytes,
}

/// Sends a reply. Returns what the client does not take yet.
fn send_reply(respond: &mut SendResponse<Bytes>, reply: Reply) -> Option<BlockedAnswer> {
    match reply {
        Reply::Message(message) => {
            let mut stream = send_head(respond, ok_head(), false)?;
            stream.reserve_capacity(message.len());
            if stream.capacity() < message.len() {
                return Some(BlockedAnswer { stream, message });
            }
            if let Err(error) = stream.send_data(message, false).and_then(|()| send_ok(&mut stream)) {
                tracing::debug!(%error, "an answer cannot be sent");
            }
        }
        Reply::Refusal(status) => {
            send_head(respond, status.into_http(), true)?;
        }
        Reply::HttpRefusal(code, status) => {
            let mut head = status.into_http();
            *head.status_mut() = code;
            send_head(respond, head, true)?;
        }
    }
    None
}

impl BlockedAnswer {
    /// Sends the rest as the client's window admits it.
    async fn send_rest(mut self) {
        if send_data(&mut self.stream, self.message).await.is_ok()
            && let Err(error) = send_ok(&mut self.stream)
        {
            tracing::debug!(%error, "an answer cannot be sent");
        }
    }
}

/// Sends the answer of one of tonic's services, and waits for the client.
async fn send_response(mut respond: SendResponse<Bytes>, response: Response<StreamBody>) {
    let (parts, body) = response.into_parts();
    let mut head = Response::from_parts(parts, ());
    if body.is_end_stream() {
        send_head(&mut respond, head, true);
        return;
    }
    if let Some(length) = body.size_hint().exact() {
        head.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    if let Some(mut stream) = send_head(&mut respond, head, false)
        && let Err(ClientGone) = send_body(&mut stream, body).await
    {
        tracing::debug!("the client did not take the whole answer");
    }
}

/// `None` if the client has reset the call, or h2 refuses the headers.
fn send_head(
    respond: &mut SendResponse<Bytes>,
    head: Response<()>,
    is_last: bool,
) -> Option<SendStream<Bytes>> {
    match respond.send_response(head, is_last) {
        Ok(stream) => Some(stream),
        Err(error) => {
            tracing::debug!(%error, "an answer cannot be sent");
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

/// The client has reset the call, or the connection has ended: the rest cannot be sent.
#[derive(Debug)]
struct ClientGone;

impl From<h2::Error> for ClientGone {
    fn from(error: h2::Error) -> Self {
        tracing::debug!(%error, "an answer cannot be sent");
        Self
    }
}

/// Sends a body with its trailers, and ends the stream.
async fn send_body<B>(stream: &mut SendStream<Bytes>, mut body: B) -> Result<(), ClientGone>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    loop {
        let frame = {
            let mut next = pin!(body.frame());
            poll_fn(|cx| match next.as_mut().poll(cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                Poll::Pending => stream.poll_reset(cx).map(|_| Err(ClientGone)),
            })
            .await?
        };
        let frame = match frame {
            None => return Ok(stream.send_data(Bytes::new(), true)?),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                tracing::debug!(%error, "an answer ends early");
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
        };
        match frame.into_data() {
            Ok(data) => send_data(stream, data).await?,
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    return Ok(stream.send_trailers(trailers)?);
                }
            }
        }
    }
}

/// Sends all of `data`, in parts if the windows admit no more.
async fn send_data(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), ClientGone> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let admitted = poll_fn(|cx| poll_admitted(stream, cx)).await?;
        stream.send_data(data.split_to(admitted.min(data.len())), false)?;
    }
    Ok(())
}

/// The number of bytes that the windows admit, at least 1.
fn poll_admitted(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<Result<usize, ClientGone>> {
    loop {
        let admitted = stream.capacity();
        if admitted > 0 {
            return Poll::Ready(Ok(admitted));
        }
        match ready!(stream.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(Err(error.into())),
            None => return Poll::Ready(Err(ClientGone)),
        }
    }
}
