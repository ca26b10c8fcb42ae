//! One connection of a worker: counted while it is open, and closed if the client does not send the HTTP/2 preface in
//! time. Reads in turns, so that the calls of one connection do not delay those of other connections. Ends by age, at
//! the stop, or because a new connection needs its place.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use engine::Store;
use futures_util::future::{BoxFuture, Either, select};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::call::{CallStarter, DecisionCalls};
use super::http2::connection::{ConnectionEnd, Http2Connection};
use super::http2::header_blocks::PREFACE_BYTES;
use super::open_calls::{ConnectionCalls, WorkerCalls};
use super::other_services::OpenStreams;
use super::service::GrpcOptions;
use super::silence::IdleWatch;
use crate::net::admission::Admitted;
use crate::net::socket::{ClientSocket, DetachedSession, MovableSocket};
use crate::telemetry::metrics::CloseReason;

/// The number of open connections of one worker. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenConnections(Arc<AtomicUsize>);

/// Counts one connection until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    worker: OpenConnections,
    place: Arc<Admitted>,
}

impl OpenConnections {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn acquire(&self, port: Admitted) -> ConnectionPermit {
        self.0.fetch_add(1, Ordering::Relaxed);
        ConnectionPermit { worker: self.clone(), place: Arc::new(port) }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.worker.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection on its way from the acceptor to a worker. It is not registered with a runtime.
#[derive(Debug)]
pub(super) struct AcceptedConnection {
    pub(super) stream: AcceptedStream,
    pub(super) permit: ConnectionPermit,
}

#[derive(Debug)]
pub(super) enum AcceptedStream {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
    /// A session after its handshake.
    Tls(DetachedSession),
}

/// A connection that a worker serves: clear text on a `ClientSocket`, or TLS.
pub(super) struct Connection<S> {
    stream: S,
    preface: Preface,
    turn: Turn,
    permit: ConnectionPermit,
}

/// A connection on either kind of socket. The kinds are types, so that clear text does not pay for TLS.
pub(super) enum WorkerConnection {
    Tcp(Connection<ClientSocket<TcpStream>>),
    Unix(Connection<ClientSocket<UnixStream>>),
    Tls(Connection<Box<TlsStream<MovableSocket>>>),
}

/// The client's connection preface. h2 has no timeout for it, and keep-alive starts only after it.
enum Preface {
    /// `bytes` of the preface are still missing; `timeout` resolves when the connection is to be closed.
    Pending {
        bytes: usize,
        timeout: BoxFuture<'static, ()>,
    },
    Received,
    TimedOut,
}

/// How long a client whose calls are all decided may take to read its answers and to acknowledge the GOAWAY.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(1);
/// The time for the preface. Clients send it as soon as they are connected.
pub(super) const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

impl AcceptedConnection {
    /// Registers the connection with the current runtime. `stop` ends the wait for the preface.
    pub(super) fn into_connection(self, stop: CancellationToken) -> io::Result<WorkerConnection> {
        let permit = self.permit;
        Ok(match self.stream {
            AcceptedStream::Tcp(socket) => {
                let socket = ClientSocket::from(TcpStream::from_std(socket)?);
                WorkerConnection::Tcp(Connection::new(socket, permit, stop))
            }
            AcceptedStream::Unix(socket) => {
                let socket = ClientSocket::from(UnixStream::from_std(socket)?);
                WorkerConnection::Unix(Connection::new(socket, permit, stop))
            }
            AcceptedStream::Tls(detached) => {
                WorkerConnection::Tls(Connection::new(detached.attach()?, permit, stop))
            }
        })
    }
}

impl Preface {
    fn record_read(&mut self, read: usize) {
        if let Self::Pending { bytes, .. } = self {
            *bytes = bytes.saturating_sub(read);
            if *bytes == 0 {
                *self = Self::Received;
            }
        }
    }

    fn is_timed_out(&mut self, cx: &mut Context<'_>) -> bool {
        if let Self::Pending { timeout, .. } = self
            && timeout.as_mut().poll(cx).is_ready()
        {
            *self = Self::TimedOut;
        }
        matches!(self, Self::TimedOut)
    }
}

impl<S> Connection<S> {
    pub(super) fn new(stream: S, permit: ConnectionPermit, stop: CancellationToken) -> Self {
        let timeout = Box::pin(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(PREFACE_TIMEOUT) => {}
            }
        });
        let preface = Preface::Pending { bytes: PREFACE_BYTES, timeout };
        Self { stream, preface, turn: Turn::default(), permit }
    }

    pub(super) fn turn(&self) -> Turn {
        self.turn.clone()
    }

    /// The place of the connection among those that its port may have.
    pub(super) fn place(&self) -> Arc<Admitted> {
        Arc::clone(&self.permit.place)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.preface.is_timed_out(cx) {
            // End of file: h2 closes the connection.
            return Poll::Ready(Ok(()));
        }
        let most = self.turn.bytes_left().min(buf.remaining());
        if most == 0 {
            // This wakes the task: the runtime polls it again after the tasks that are ready now.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        let read = part.filled().len();
        buf.advance(read);
        self.turn.record_read(read);
        self.preface.record_read(read);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// A connection reads at most this many bytes in one turn, some 30 requests. Without turns, all calls that a client has
/// sent at once would start before a call of another client.
const TURN_BYTES: usize = 2 * 1024;

/// The bytes that a connection may still read before the tasks of other connections run. Clones share them.
///
/// A turn is one poll of the connection's task. A read that is pending once would not end it, because h2 reads again
/// for each call that it accepts.
#[derive(Clone, Debug)]
pub(super) struct Turn(Arc<AtomicUsize>);

impl Default for Turn {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(TURN_BYTES)))
    }
}

impl Turn {
    pub(super) fn begin(&self) {
        self.0.store(TURN_BYTES, Ordering::Relaxed);
    }

    pub(super) fn bytes_left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn record_read(&self, bytes: usize) {
        self.0.store(self.bytes_left().saturating_sub(bytes), Ordering::Relaxed);
    }
}

/// What the connections of one worker share.
pub(super) struct ConnectionServer<S> {
    pub(super) decisions: Arc<DecisionCalls<S>>,
    pub(super) routes: Routes,
    pub(super) calls: Arc<WorkerCalls>,
    /// Shared by all workers.
    pub(super) streams: Arc<OpenStreams>,
    pub(super) options: GrpcOptions,
    pub(super) stop: CancellationToken,
}

impl<S: Store + 'static> ConnectionServer<S> {
    /// Serves `io` until the client closes it, it is too old, its place is needed, or the server stops. Then finishes
    /// its calls.
    pub(super) async fn serve<I>(self: Arc<Self>, io: I, turn: Turn, place: Arc<Admitted>)
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let calls = self.calls.connect();
        let closing = self.stop.child_token();
        let starter = CallStarter {
            decisions: Arc::clone(&self.decisions),
            routes: self.routes.clone(),
            calls: Arc::clone(&calls),
            streams: self.streams.connect(),
            closing: closing.clone(),
        };
        let idle = IdleWatch::new(Arc::clone(&place), closing.clone());
        let unfinished = self.decisions.bounds.unfinished.clone();
        let mut connection = pin!(Http2Connection::new(io, starter, Arc::clone(&calls), idle, unfinished));
        let closes = pin!(self.age_or_closing(&closing));
        let ended = match select(in_turns(connection.as_mut(), &turn), closes).await {
            Either::Left((ended, _)) => Some(ended),
            Either::Right(_) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                closing.cancel();
                if connection.has_leaked_many_streams() {
                    place.record_close(CloseReason::LeakedStreams);
                }
                connection.close_gracefully();
                finish(in_turns(connection, &turn), &calls, self.options.finish_within).await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
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

/// Polls `connection` so that each poll is a turn.
fn in_turns<C>(mut connection: Pin<&mut C>, turn: &Turn) -> impl Future<Output = C::Output> + Unpin
where
    C: Future,
{
    poll_fn(move |cx| {
        turn.begin();
        connection.as_mut().poll(cx)
    })
}

/// Waits for the calls in flight, and for the client to close the connection. Does not wait for a client that only
/// delays the end.
async fn finish<C>(
    mut connection: C,
    calls: &ConnectionCalls,
    finish_within: Duration,
) -> Result<(), ConnectionEnd>
where
    C: Future<Output = Result<(), ConnectionEnd>> + Unpin,
{
    let mut patience = pin!(tokio::time::sleep(finish_within));
    loop {
        tokio::select! {
            // The connection is polled first, so that an answer that is decided when the pause ends is still written.
            biased;
            ended = &mut connection => return ended,
            () = patience.as_mut() => return Ok(()),
            () = tokio::time::sleep(ACKNOWLEDGE_WITHIN) => {
                if !calls.has_pending_decisions() {
                    return Ok(());
                }
            }
        }
    }
}
