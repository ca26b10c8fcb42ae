//! One connection: accepts its calls, and answers the calls that need not wait.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use engine::Store;
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answering::{late, send, spawn_decision, spawn_routed};
use super::header_blocks::{HeaderBlocks, MAX_READ_HEADER_BYTES};
use super::held_calls::{HeldCall, HeldCalls};
use crate::grpc::call::{CallStarter, StartedCall};
use crate::grpc::call_head::CallHead;
use crate::grpc::message::RequestBody;
use crate::grpc::open_calls::ConnectionCalls;
use crate::grpc::silence::{IdleWatch, KEEPALIVE_TIMEOUT, KeepAlive};
use crate::net::UnfinishedBytes;

/// Envoy opens one connection per worker thread and allows 1,024 calls at once on each.
pub(in crate::grpc) const MAX_CONCURRENT_STREAMS: u32 = 1_024;
/// The window of a stream and of a connection. It is so large that no client has to wait for it, and that a message
/// needs no frame that opens it again.
const WINDOW_BYTES: u32 = 1024 * 1024;
const MAX_FRAME_BYTES: u32 = 16 * 1024;
/// The most data that one stream holds for its client.
const MAX_SEND_BUFFER_BYTES: usize = 16 * 1024;
/// At most this many held calls start in one poll, about as many as one turn of a connection reads. Other tasks of the
/// worker run before more calls start.
const STARTS_AT_ONCE: usize = 32;
/// After many calls have come at once, the list of accepted calls is shrunk to room for this many.
const USUAL_CALLS: usize = 64;
/// The connection is closed after the server has reset this many streams because of the client's errors.
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
pub(in crate::grpc) struct Http2Connection<I, S> {
    state: State<HeaderBlocks<I>>,
    calls: AcceptedCalls<S>,
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
struct AcceptedCalls<S> {
    starter: CallStarter<S>,
    counts: Arc<ConnectionCalls>,
    /// Accepted in this poll.
    accepted: Vec<(Request<RecvStream>, SendResponse<Bytes>)>,
    /// Accepted in earlier polls.
    held: HeldCalls,
}

impl<I, S> Http2Connection<I, S>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Store + 'static,
{
    /// The token of `idle` is cancelled when the client had better open a new connection.
    pub(in crate::grpc) fn new(
        io: I,
        starter: CallStarter<S>,
        counts: Arc<ConnectionCalls>,
        idle: IdleWatch,
        unfinished: UnfinishedBytes,
    ) -> Self {
        let io = HeaderBlocks::new(io, unfinished, Arc::clone(&counts));
        let closing = idle.closing();
        let held = HeldCalls::new(counts.hold_at_most());
        let calls = AcceptedCalls { starter, counts, accepted: Vec::new(), held };
        let state = State::Handshake(builder().handshake(io), Some(idle));
        Self { state, calls, leaked: LeakedStreams::default(), closing, is_closing: false }
    }

    /// Whether the client had better open a new connection, because h2 has leaked many streams of this one.
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
        match self {
            Self::Open(open) => Poll::Ready(Ok(open)),
            Self::Handshake(handshake, idle) => {
                let mut connection = ready!(Pin::new(handshake).poll(cx))?;
                if is_closing {
                    connection.graceful_shutdown();
                }
                let keep_alive = KeepAlive::new(connection.ping_pong(), idle.take());
                *self = Self::Open(AcceptingConnection { connection, keep_alive, end: None });
                self.poll_open(is_closing, cx)
            }
        }
    }
}

impl<I, S> Future for Http2Connection<I, S>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Store + 'static,
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
            // h2 has read all that has arrived. Answers in its queue wake this task, and are written in its next poll.
            // By then other tasks of the worker have run, and may have added answers to the same write.
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

impl<S: Store + 'static> AcceptedCalls<S> {
    /// How many calls are open or about to be.
    fn open(&self) -> usize {
        self.counts.open_calls() + self.accepted.len()
    }

    /// Starts calls in the order of their arrival, and holds the calls that may not be decided yet.
    fn start(&mut self, cx: &mut Context<'_>) {
        self.held.record_load(self.counts.store_has_room());
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
            let CallHead { time_limit, is_long } = match self.starter.read_call_head(&request) {
                Ok(head) => head,
                Err(refusal) => {
                    send(respond, refusal, || self.counts.open());
                    continue;
                }
            };
            let starts = self.held.is_empty() && self.may_start();
            // `start_call` refuses a call for which there is no room.
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
            self.counts.register_waker(cx.waker());
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
            None => {
                let reply = late(&open);
                send(respond, reply, || open);
            }
        }
    }

    /// Starts a call. A decision is polled once here. It is then ready if the counters are in memory, if no limit
    /// applies, or if the deny cache denies it, and its answer needs no task. With Redis this poll puts the request
    /// into the queue of its server, and a task waits for the reply.
    fn start_call(
        &mut self,
        cx: &mut Context<'_>,
        request: Request<RecvStream>,
        respond: SendResponse<Bytes>,
        time_limit: Duration,
    ) {
        let counts = &self.counts;
        match self.starter.start(request.map(RequestBody::from)) {
            StartedCall::Answered(reply) => send(respond, reply, || counts.open()),
            StartedCall::Deciding(mut deciding) => match deciding.as_mut().poll(cx) {
                Poll::Ready(reply) => send(respond, reply, || counts.open()),
                Poll::Pending => {
                    spawn_decision(respond, deciding, time_limit, counts.decide(true), counts.open());
                }
            },
            StartedCall::Reading(reading) => {
                spawn_decision(respond, reading, time_limit, counts.decide(false), counts.open());
            }
            StartedCall::Routed { response, is_stream } => {
                spawn_routed(respond, response, is_stream, counts.open());
            }
        }
    }
}

/// Leaked streams are counted once in this many calls, because h2 takes a lock to tell how many streams it has.
const CALLS_PER_LOOK: usize = 64;
/// More leaked streams than this are many. It is more than the 50 streams that h2 keeps for a second after it has reset
/// them. With the calls between two counts they take some 40 KB.
const MAX_LEAKED: usize = 64;
/// A client that continues after GOAWAY may leak this many streams. That is more than the 1,024 answers that may wait
/// for a client that does not read.
const MAX_LEAKED_AFTER_GOAWAY: usize = 2 * 1_024;

/// Counts the streams of one connection that h2 has leaked.
///
/// When the client's window of the connection is used up, h2 queues each stream that has data to send. If the client
/// resets such a stream, h2 never releases it, not even when it leaves the queue. The stream takes some 300 bytes until
/// the connection ends (0.4.20; `grpc/tests/h2_leak.rs` shows it). Without a bound, one client that takes no answers
/// could fill the memory in seconds.
#[derive(Default)]
struct LeakedStreams {
    calls: usize,
    leaked: usize,
}

impl LeakedStreams {
    /// Records accepted calls. `leaked` computes how many streams h2 holds for no call.
    fn record_calls(&mut self, accepted: usize, leaked: impl FnOnce() -> usize) {
        self.calls += accepted;
        if self.calls >= CALLS_PER_LOOK {
            self.calls = 0;
            self.leaked = leaked();
        }
    }

    /// Whether the client had better open a new connection.
    fn are_many(&self) -> bool {
        self.leaked > MAX_LEAKED
    }

    /// Whether the client has continued for too long after GOAWAY.
    fn are_too_many(&self) -> bool {
        self.leaked > MAX_LEAKED_AFTER_GOAWAY
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
