//! One connection: accepts its calls, and answers those that need not wait.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, ReusableBoxFuture};

use super::answering::send_answer;
use super::call_task::{late, spawn_decision, spawn_rest, spawn_routed};
use super::calls::{Answer, CallHead, CallStarter, StartedCall};
use super::header_blocks::{HeaderBlocks, MAX_READ_HEADER_BYTES};
use super::held_calls::{HeldCall, HeldCalls};
use super::keep_alive::{KEEPALIVE_TIMEOUT, KeepAlive};
use super::leaked_streams::LeakedStreams;
use super::request_body::RequestBody;
use crate::grpc::idle_watch::IdleWatch;
use crate::grpc::open_calls::ConnectionCalls;
use crate::net::UnfinishedBytes;

/// Envoy opens one connection per worker thread and allows 1,024 calls at once on each.
pub(in crate::grpc) const MAX_CONCURRENT_STREAMS: u32 = 1_024;
/// Of a stream and of a connection: no client has to wait for it, and a message needs no frame that opens it again.
const WINDOW_BYTES: u32 = 1024 * 1024;
const MAX_FRAME_BYTES: u32 = 16 * 1024;
/// Of the data that one stream holds for its client.
const MAX_SEND_BUFFER_BYTES: usize = 16 * 1024;
/// So many held calls start in one poll: about as many as arrive in the turn of a connection. Other tasks of the worker
/// run before more calls start.
const STARTS_AT_ONCE: usize = 32;
/// Accepted at once. Room for more calls is given back.
const USUAL_CALLS: usize = 64;
/// Streams that the server resets because of the client's errors, before it closes the connection.
const MAX_ERROR_RESETS: usize = 1_024;

/// Why a connection ended before the client closed it.
#[derive(Debug, thiserror::Error)]
pub(in crate::grpc) enum ConnectionEnd {
    #[error(transparent)]
    Http2(#[from] h2::Error),
    #[error("the client did not answer a PING within {KEEPALIVE_TIMEOUT:?}")]
    Unanswered,
    #[error("the client resets calls whose answers wait for its window")]
    LeakedStreams,
}

/// Serves a connection until it ends. Each poll reads and accepts what has arrived, then starts the calls that may be
/// decided.
pub(in crate::grpc) struct Http2Connection<I, C> {
    state: State<HeaderBlocks<I>>,
    calls: AcceptedCalls<C>,
    leaked: LeakedStreams,
    closing: CancellationToken,
    is_closing: bool,
}

enum State<I> {
    /// The watch is taken at the end of the handshake.
    Handshake(Handshake<I, Bytes>, Option<IdleWatch>),
    Open(AcceptingConnection<I>),
}

struct AcceptingConnection<I> {
    connection: Connection<I, Bytes>,
    keep_alive: KeepAlive,
    /// Why the connection is being closed.
    end: Option<ConnectionEnd>,
}

/// The calls of a connection that are accepted and not started.
struct AcceptedCalls<C> {
    starter: C,
    counts: Arc<ConnectionCalls>,
    /// In this poll.
    accepted: Vec<(Request<RecvStream>, SendResponse<Bytes>)>,
    /// In earlier polls.
    held: HeldCalls,
    /// The box of the last decision that did not have to wait; the next decision is made in it.
    decision: Option<ReusableBoxFuture<'static, Answer>>,
}

impl<I, C> Http2Connection<I, C>
where
    I: AsyncRead + AsyncWrite + Unpin,
    C: CallStarter + Unpin,
{
    /// The token of `idle` is cancelled when a new connection is better than this one.
    pub(in crate::grpc) fn new(
        io: I,
        starter: C,
        counts: Arc<ConnectionCalls>,
        idle: IdleWatch,
        unfinished: UnfinishedBytes,
    ) -> Self {
        let io = HeaderBlocks::new(io, unfinished, Arc::clone(&counts));
        let closing = idle.closing();
        let held = HeldCalls::new(counts.hold_at_most());
        let calls = AcceptedCalls { starter, counts, accepted: Vec::new(), held, decision: None };
        let state = State::Handshake(builder().handshake(io), Some(idle));
        Self { state, calls, leaked: LeakedStreams::default(), closing, is_closing: false }
    }

    /// Whether a new connection is better than this one: h2 has leaked many of its streams.
    pub(in crate::grpc) fn has_leaked_many_streams(&self) -> bool {
        self.leaked.are_many()
    }

    /// Sends GOAWAY: the client may finish its calls, and then the connection ends.
    pub(in crate::grpc) fn close_gracefully(&mut self) {
        self.is_closing = true;
        if let State::Open(open) = &mut self.state {
            open.connection.graceful_shutdown();
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> State<I> {
    /// The connection, after its handshake.
    fn poll_open(
        &mut self,
        is_closing: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<&mut AcceptingConnection<I>, ConnectionEnd>> {
        if let Self::Handshake(handshake, idle) = self {
            let mut connection = ready!(Pin::new(handshake).poll(cx))?;
            if is_closing {
                connection.graceful_shutdown();
            }
            let keep_alive = KeepAlive::new(connection.ping_pong(), idle.take());
            *self = Self::Open(AcceptingConnection { connection, keep_alive, end: None });
        }
        match self {
            Self::Open(open) => Poll::Ready(Ok(open)),
            // Does not occur: the handshake is over.
            Self::Handshake(..) => Poll::Pending,
        }
    }
}

impl<I, C> Future for Http2Connection<I, C>
where
    I: AsyncRead + AsyncWrite + Unpin,
    C: CallStarter + Unpin,
{
    type Output = Result<(), ConnectionEnd>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { state, calls, leaked, closing, is_closing } = &mut *self;
        let open = ready!(state.poll_open(*is_closing, cx))?;
        let AcceptingConnection { connection, keep_alive, end } = open;
        loop {
            let accepted = pin!(connection.accept()).poll(cx);
            if let Poll::Ready(Some(Ok(call))) = accepted {
                calls.accepted.push(call);
                continue;
            }
            // h2 has read all that there is. Answers in its queue wake this task, and are written at its next poll: by
            // then other tasks of the worker have run, and may have more answers for the same write.
            if !calls.accepted.is_empty() {
                keep_alive.record_call();
                leaked.record_calls(calls.accepted.len(), || {
                    connection.num_wired_streams().saturating_sub(calls.open())
                });
                if leaked.are_many() {
                    closing.cancel();
                }
            }
            calls.start(cx);
            match accepted {
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error.into())),
                Poll::Ready(_) => return Poll::Ready(end.take().map_or(Ok(()), Err)),
                Poll::Pending if end.is_some() => return Poll::Pending,
                Poll::Pending => {}
            }
            let reason = if leaked.are_too_many() {
                *end = Some(ConnectionEnd::LeakedStreams);
                Reason::ENHANCE_YOUR_CALM
            } else {
                ready!(keep_alive.poll_unanswered(cx));
                *end = Some(ConnectionEnd::Unanswered);
                Reason::NO_ERROR
            };
            connection.abrupt_shutdown(reason);
        }
    }
}

impl<C: CallStarter> AcceptedCalls<C> {
    /// How many calls are open or about to be.
    fn open(&self) -> usize {
        self.counts.open_calls() + self.accepted.len()
    }

    /// Starts calls in the order of their arrival, and holds those that may not be decided yet.
    fn start(&mut self, cx: &mut Context<'_>) {
        self.held.note_load(self.counts.store_has_room());
        let mut started = 0;
        while started < STARTS_AT_ONCE
            && self.may_start()
            && let Some(call) = self.held.next(cx)
        {
            self.start_held(cx, call);
            started += 1;
        }
        let mut accepted = std::mem::take(&mut self.accepted);
        for (request, respond) in accepted.drain(..) {
            let CallHead { time_limit, is_long } = match self.starter.read_head(&request) {
                Ok(head) => head,
                Err(refusal) => {
                    answer_call(&self.counts, respond, refusal);
                    continue;
                }
            };
            let starts = self.held.is_empty() && self.may_start();
            // Without room it is refused at its start.
            if starts || is_long || !self.counts.has_room() {
                self.start_call(cx, request, respond, time_limit);
            } else {
                let (since, open) = (Instant::now(), self.counts.open());
                let call = HeldCall { request, respond, since, time_limit, open };
                self.held.push(cx, MAX_CONCURRENT_STREAMS as usize, call);
                self.counts.record_held();
            }
        }
        accepted.shrink_to(USUAL_CALLS);
        self.accepted = accepted;
        if !self.held.is_empty() && self.may_start() {
            cx.waker().wake_by_ref();
        } else if !self.held.is_empty() {
            self.counts.wake_after_decision(cx.waker());
            self.held.wake_when_due(cx);
        }
    }

    /// Whether the next call may start.
    fn may_start(&self) -> bool {
        self.counts.may_decide() || self.held.is_overloaded()
    }

    fn start_held(&mut self, cx: &mut Context<'_>, call: HeldCall) {
        let waited = call.waited();
        let HeldCall { request, respond, time_limit, open, .. } = call;
        match time_limit.checked_sub(waited) {
            Some(left) => {
                drop(open);
                self.start_call(cx, request, respond, left);
            }
            None => answer_call(&self.counts, respond, late(&open)),
        }
    }

    fn start_call(
        &mut self,
        cx: &mut Context<'_>,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        time_limit: Duration,
    ) {
        let Self { starter, counts, decision, .. } = self;
        match starter.start(request.map(RequestBody::from)) {
            StartedCall::Answered(answer) => answer_call(counts, respond, answer),
            StartedCall::Deciding(deciding) => {
                let mut boxed = match decision.take() {
                    Some(mut boxed) => {
                        boxed.set(deciding);
                        boxed
                    }
                    None => ReusableBoxFuture::new(deciding),
                };
                match boxed.poll(cx) {
                    Poll::Ready(answer) => {
                        *decision = Some(boxed);
                        answer_call(counts, respond, answer);
                    }
                    Poll::Pending => {
                        spawn_decision(respond, boxed, time_limit, counts.decide(true), counts.open());
                    }
                }
            }
            StartedCall::Reading(answer) => {
                spawn_decision(respond, answer, time_limit, counts.decide(false), counts.open());
            }
            StartedCall::Routed { response, is_stream } => {
                spawn_routed(respond, response, is_stream, counts.open());
            }
        }
    }
}

fn answer_call(counts: &Arc<ConnectionCalls>, mut respond: SendResponse<Bytes>, answer: Answer) {
    if let Some(untaken) = send_answer(&mut respond, answer) {
        spawn_rest(untaken, counts.open());
    }
}

fn builder() -> Builder {
    let mut builder = Builder::new();
    builder
        .initial_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .max_header_list_size(MAX_READ_HEADER_BYTES)
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_local_error_reset_streams(Some(MAX_ERROR_RESETS))
        .max_send_buffer_size(MAX_SEND_BUFFER_BYTES);
    builder
}
