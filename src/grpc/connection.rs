//! A client's connection: counted while it is open, closed if the client does not send the HTTP/2 preface in time.
//! Reads in turns, so that the calls of one connection do not delay those of other connections.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::net::admission::Admitted;
use crate::net::socket::{ClientSocket, DetachedSession, MovableSocket};

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

/// A connection on each kind of socket. The kinds are types, so that clear text does not pay for TLS.
pub(super) enum WorkerConnection {
    Tcp(Connection<ClientSocket<TcpStream>>),
    Unix(Connection<ClientSocket<UnixStream>>),
    Tls(Connection<Box<TlsStream<MovableSocket>>>),
}

/// The client's connection preface. h2 has no timeout for it, and keep-alive starts after it.
enum Preface {
    /// `bytes` of the preface are still missing; `timeout` resolves when the connection is to be closed.
    Pending {
        bytes: usize,
        timeout: BoxFuture<'static, ()>,
    },
    Received,
    TimedOut,
}

/// The length of the preface (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
/// The time for the preface. Clients send it as soon as they are connected.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

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
    fn new(stream: S, permit: ConnectionPermit, stop: CancellationToken) -> Self {
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

    /// The connection's share of the bound of its port.
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
            // The runtime polls this connection again after the tasks that are ready now.
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
/// A turn is one poll of the connection's task: h2 reads again for each call that it accepts, so a read that is
/// pending once would not end the turn.
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;
    use crate::net::listener::PortStream;
    use crate::net::socket::WRITE_TIMEOUT;
    use crate::net::tls::HandshakeBounds;
    use crate::net::tls::testing::TestPort;
    use crate::net::{Admission, ConnectionBounds};
    use crate::telemetry::metrics::{Metrics, Port};

    const PREFACE: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    fn admitted() -> Admitted {
        let metrics = Metrics::new(800_000).expect("different names");
        let bounds = ConnectionBounds { total: 1, per_address: 1 };
        let admission = Admission::new(Port::Grpc, bounds, metrics.connections(Port::Grpc));
        admission.admit([127, 0, 0, 1].into()).expect("the first connection")
    }

    /// Both ends of a connection that was just accepted.
    async fn connect(stop: CancellationToken) -> (TcpStream, Connection<ClientSocket<TcpStream>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.expect("a connection");
        let permit = OpenConnections::default().acquire(admitted());
        (client.expect("a connection"), Connection::new(ClientSocket::from(stream), permit, stop))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_a_whole_preface_is_closed_after_the_timeout() {
        let (mut client, mut server) = connect(CancellationToken::new()).await;
        client.write_all(&PREFACE[..PREFACE_BYTES - 1]).await.expect("an open connection");
        let start = Instant::now();
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.expect("an end, not an error");
        assert_eq!(received, PREFACE[..PREFACE_BYTES - 1]);
        assert_eq!(start.elapsed(), PREFACE_TIMEOUT);
        assert_eq!(server.read(&mut [0; 8]).await.expect("still closed"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_a_preface_is_closed_when_the_server_stops() {
        let stop = CancellationToken::new();
        let (_client, mut server) = connect(stop.clone()).await;
        stop.cancel();
        let start = Instant::now();
        assert_eq!(server.read(&mut [0; 8]).await.expect("an end, not an error"), 0);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sent_its_preface_may_be_silent() {
        let stop = CancellationToken::new();
        let (mut client, mut server) = connect(stop.clone()).await;
        client.write_all(PREFACE).await.expect("an open connection");
        server.read_exact(&mut [0; PREFACE_BYTES]).await.expect("the preface");
        stop.cancel();
        let silence = tokio::time::timeout(10 * PREFACE_TIMEOUT, server.read(&mut [0; 8])).await;
        assert!(silence.is_err(), "{silence:?}");
    }

    /// The write timeout is below TLS: a session takes some data of its own before the socket blocks.
    #[tokio::test(start_paused = true)]
    async fn a_client_of_tls_that_does_not_read_is_closed() {
        let port = TestPort::new(HandshakeBounds { total: 1, per_address: 1 });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (client, (socket, _)) = (client.expect("a connection"), accepted.expect("a connection"));
        let handshake = port.tls.begin(address.ip()).expect("a place").run(PortStream::Left(socket));
        let (session, client) = tokio::join!(handshake, port.connect(client));
        let client = client.expect("a handshake");
        let permit = OpenConnections::default().acquire(admitted());
        let stream = AcceptedStream::Tls(session.expect("a handshake"));
        let accepted = AcceptedConnection { stream, permit };
        let WorkerConnection::Tls(mut server) =
            accepted.into_connection(CancellationToken::new()).expect("a socket")
        else {
            unreachable!("the stream is TLS");
        };
        let start = Instant::now();
        let error = server.write_all(&vec![0; 64 << 20]).await.expect_err("more than the sockets hold");
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, WRITE_TIMEOUT));
        drop(client);
    }

    #[tokio::test]
    async fn a_turn_ends_after_some_bytes() {
        let (mut client, mut server) = connect(CancellationToken::new()).await;
        let turn_bytes = server.turn().bytes_left();
        client.write_all(&vec![0; 3 * turn_bytes]).await.expect("an open connection");
        let mut buf = vec![0; 3 * turn_bytes];
        server.read_exact(&mut buf[..turn_bytes]).await.expect("an open connection");
        let next = server.read(&mut buf).now_or_never();
        assert!(next.is_none(), "the turn is over");
        server.turn().begin();
        let next = server.read(&mut buf).now_or_never();
        assert_eq!(next.expect("ready").expect("an open connection"), turn_bytes);
    }

    #[tokio::test]
    async fn a_connection_is_counted_until_it_is_dropped() {
        let open = OpenConnections::default();
        let (first, second) = (open.acquire(admitted()), open.clone().acquire(admitted()));
        assert_eq!(open.count(), 2);
        drop(first);
        assert_eq!(open.count(), 1);
        drop(second);
        assert_eq!(open.count(), 0);
    }
}
