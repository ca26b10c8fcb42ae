//! Serves one connection with HTTP/2, on the h2 crate. Each poll of its task accepts the calls that have arrived
//! (`accepted_calls.rs` starts them) and writes the answers that are ready. The server closes a connection because of
//! its age, at shutdown, to make room for a new connection, or if its client misbehaves.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::future::{Either, select};
use h2::Reason;
use h2::server::{Builder, Connection};
use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::accepted_calls::AcceptedCalls;
use super::call::{CallServer, CallStarter};
use super::connection_io::{ConnectionIo, ReadBudget};
use super::placement::Placement;
use super::routed_calls::{RoutedCalls, StreamPlaces};
use super::silence::{IdleWatch, KeepAlive};
use super::undelivered::SlotAnswers;
use crate::decide::CertificateRights;
use crate::grpc::GrpcOptions;
use crate::grpc::tonic_server::{
    KEEPALIVE_TIMEOUT, MAX_CONCURRENT_STREAMS, MAX_READ_HEADER_BYTES, WINDOW_BYTES,
};
use crate::net::admission::Admitted;
use crate::telemetry::metrics::CloseReason;

const MAX_FRAME_BYTES: u32 = 16 * 1024;
/// Maximum data that one stream holds for its client.
const MAX_SEND_BUFFER_BYTES: usize = 16 * 1024;
/// After this many stream resets because of client errors, the connection is closed.
const MAX_ERROR_RESETS: usize = 1_024;
/// Time limit for the client's connection preface, which ends the handshake: clients send it as soon as they connect.
/// h2 does not limit it, and keep-alive starts only after it.
pub(super) const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client can take to read its answers and acknowledge the GOAWAY, once all its calls are decided.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(1);

/// Shared by the connections of one worker.
pub(super) struct ConnectionServer {
    pub(super) calls: Arc<CallServer>,
    /// Shared by all workers.
    pub(super) streams: StreamPlaces,
    pub(super) options: GrpcOptions,
    /// Bytes that a connection can read in one poll of its task.
    pub(super) bytes_per_poll: usize,
    pub(super) stop: CancellationToken,
}

impl ConnectionServer {
    /// Serves the connection until the client closes it, it is too old, a new one needs its slot, or the server stops.
    /// Then finishes its calls.
    pub(super) async fn serve<I>(
        self: Arc<Self>,
        stream: I,
        placement: Arc<Placement>,
        (admitted, certificate): (Arc<Admitted>, CertificateRights),
    ) where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let slot_answers = SlotAnswers::new(self.calls.decisions.send.clone());
        let counts = self.calls.counts.add_connection(Arc::new(slot_answers));
        let closing = self.stop.child_token();
        let calls = AcceptedCalls::new(CallStarter {
            server: Arc::clone(&self.calls),
            routed: RoutedCalls::new(self.streams.clone(), closing.clone()),
            counts: Arc::clone(&counts),
            certificate,
        });
        let budget = ReadBudget::new(self.bytes_per_poll);
        let unfinished = self.calls.bounds.unfinished.clone();
        let io = ConnectionIo::new(stream, budget, unfinished, counts);
        let idle = IdleWatch::new(Arc::clone(&admitted), closing.clone());
        // Boxed, so that an open connection does not retain its handshake's memory.
        let opened = timeout(PREFACE_TIMEOUT, Http2Connection::open(io, calls, idle, placement));
        let ended = match Box::pin(self.stop.run_until_cancelled(opened)).await {
            Some(Ok(Ok(mut connection))) => self.run(connection.as_mut(), &admitted, &closing).await,
            Some(Ok(Err(error))) => Err(error.into()),
            Some(Err(_)) => Err(ConnectionEnd::NoPreface),
            // The server stops.
            None => return,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended early");
        }
    }

    async fn run<I>(
        &self,
        mut connection: Pin<&mut Http2Connection<I>>,
        admitted: &Admitted,
        closing: &CancellationToken,
    ) -> Result<(), ConnectionEnd>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        if let Either::Left((ended, _)) =
            select(connection.as_mut(), pin!(self.age_or_closing(closing))).await
        {
            return ended;
        }
        closing.cancel();
        if connection.leaked.are_many() {
            admitted.record_close(CloseReason::LeakedStreams);
        }
        // Sends GOAWAY: the client can finish its calls, then the connection ends.
        connection.http2.graceful_shutdown();
        finish(connection, self.options.finish_within).await
    }

    async fn age_or_closing(&self, closing: &CancellationToken) {
        match self.options.max_connection_age {
            Some(age) => {
                closing.run_until_cancelled(tokio::time::sleep(age)).await;
            }
            None => closing.cancelled().await,
        }
    }
}

/// Waits for the calls in flight, and for the client to close the connection. Does not wait for a client that only
/// delays the end.
async fn finish<I>(
    mut connection: Pin<&mut Http2Connection<I>>,
    finish_within: Duration,
) -> Result<(), ConnectionEnd>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    let mut patience = pin!(tokio::time::sleep(finish_within));
    loop {
        tokio::select! {
            // Polls the connection first, so that an answer decided at the last moment is still written.
            biased;
            ended = &mut connection => return ended,
            () = patience.as_mut() => return Ok(()),
            () = tokio::time::sleep(ACKNOWLEDGE_WITHIN) => {
                if !connection.calls.has_pending_decisions() {
                    return Ok(());
                }
            }
        }
    }
}

/// Why a connection ended before the client closed it.
#[derive(Debug, thiserror::Error)]
enum ConnectionEnd {
    #[error(transparent)]
    Http2(#[from] h2::Error),
    #[error("the client did not send its preface within {PREFACE_TIMEOUT:?}")]
    NoPreface,
    #[error("the client did not answer a PING within {KEEPALIVE_TIMEOUT:?}")]
    Unanswered,
    #[error("the client resets calls whose answers wait for its window")]
    LeakedStreams,
}

/// A connection after its handshake: a future that ends with the connection. Each poll reads and accepts what has
/// arrived, then starts the calls that may be decided.
struct Http2Connection<I> {
    http2: Connection<ConnectionIo<I>, Bytes>,
    read_budget: ReadBudget,
    calls: AcceptedCalls,
    placement: Arc<Placement>,
    keep_alive: KeepAlive,
    leaked: LeakedStreams,
    /// Cancelled when the client should open a new connection.
    closing: CancellationToken,
    end: Option<ConnectionEnd>,
}

impl<I> Http2Connection<I>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    async fn open(
        io: ConnectionIo<I>,
        calls: AcceptedCalls,
        idle: IdleWatch,
        placement: Arc<Placement>,
    ) -> Result<Pin<Box<Self>>, h2::Error> {
        let (read_budget, closing) = (io.read_budget(), idle.connection.closing.clone());
        let mut http2 = builder().handshake(io).await?;
        let keep_alive = KeepAlive::new(http2.ping_pong().expect("h2 gives it once"), idle);
        Ok(Box::pin(Self {
            http2,
            read_budget,
            calls,
            placement,
            keep_alive,
            leaked: LeakedStreams::default(),
            closing,
            end: None,
        }))
    }
}

impl<I> Future for Http2Connection<I>
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    type Output = Result<(), ConnectionEnd>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { http2, read_budget, calls, placement, keep_alive, leaked, closing, end } = &mut *self;
        if let Some(server) = placement.begin_poll() {
            calls.move_to(server);
        }
        read_budget.refill();
        loop {
            let accepted = pin!(http2.accept()).poll(cx);
            if let Poll::Ready(Some(Ok(call))) = accepted {
                calls.push(call);
                continue;
            }
            // h2 has read everything that has arrived. Queued answers wake this task, and are written in its next poll.
            // By then the worker's other tasks have run, and may have added answers to the same write.
            if calls.new_calls() > 0 {
                keep_alive.record_call();
                if leaked.should_count(calls.new_calls()) {
                    leaked.number = http2.num_wired_streams().saturating_sub(calls.streams());
                }
                if leaked.are_many() {
                    closing.cancel();
                }
            }
            calls.release_resets();
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
            http2.abrupt_shutdown(reason);
        }
    }
}

/// Calls between two counts of leaked streams, because h2 takes a lock to report its number of streams.
const CALLS_PER_COUNT: usize = 64;
/// Threshold for many leaked streams. It exceeds the 50 streams that h2 keeps for a second after resetting them. With
/// the calls between two counts they take some 40 KB.
const MAX_LEAKED: usize = 64;
/// Streams that a client can leak after GOAWAY. It exceeds the 1,024 answers that can wait for a client that does not
/// read.
const MAX_LEAKED_AFTER_GOAWAY: usize = 2 * 1_024;

/// Counts the streams of one connection that h2 has leaked.
///
/// When the client exhausts the connection's window, h2 queues each stream that has data to send. If the client resets
/// such a stream, h2 never releases it, not even when it leaves the queue. The stream takes some 300 bytes until the
/// connection ends (0.4.20; `grpc/fast/tests/h2_leak.rs` shows it). Without a bound, one client that takes no answers
/// could fill the memory within seconds.
#[derive(Default)]
struct LeakedStreams {
    /// As last counted.
    number: usize,
    calls_since_count: usize,
}

impl LeakedStreams {
    /// `true` if the streams must be counted again, now that the client has made this many new calls.
    fn should_count(&mut self, new_calls: usize) -> bool {
        self.calls_since_count += new_calls;
        let should_count = self.calls_since_count >= CALLS_PER_COUNT;
        if should_count {
            self.calls_since_count = 0;
        }
        should_count
    }

    /// `true` if the client should open a new connection.
    fn are_many(&self) -> bool {
        self.number > MAX_LEAKED
    }

    /// `true` if the client has continued too long after GOAWAY.
    fn are_too_many(&self) -> bool {
        self.number > MAX_LEAKED_AFTER_GOAWAY
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
