//! A client's connection: counted while it is open, closed if the client does not send the HTTP/2 preface in time.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::{Connected, TcpConnectInfo};

/// The number of open connections of one worker. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenConnections(Arc<AtomicUsize>);

/// Counts one connection until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionPermit(OpenConnections);

impl OpenConnections {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn acquire(&self) -> ConnectionPermit {
        self.0.fetch_add(1, Ordering::Relaxed);
        ConnectionPermit(self.clone())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection on its way from the acceptor to a worker. It is not registered with a runtime.
#[derive(Debug)]
pub(super) struct AcceptedConnection {
    pub(super) stream: std::net::TcpStream,
    pub(super) permit: ConnectionPermit,
}

/// A connection that a worker serves.
pub(super) struct Connection {
    stream: TcpStream,
    preface: Preface,
    _permit: ConnectionPermit,
}

/// The client's connection preface. hyper has no timeout for it, and sends no keep-alive PING before it.
enum Preface {
    /// `bytes` of the preface are still missing; `timeout` resolves when the connection is to be closed.
    Pending {
        bytes: usize,
        timeout: BoxFuture<'static, ()>,
    },
    Received,
    TimedOut,
}

/// Length of the preface (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
/// Clients send the preface as soon as they are connected.
const PREFACE_TIMEOUT: Duration = Duration::from_secs(10);

impl AcceptedConnection {
    /// Registers the connection with the current runtime. `stop` ends the wait for the preface.
    pub(super) fn into_connection(self, stop: CancellationToken) -> io::Result<Connection> {
        let timeout = Box::pin(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(PREFACE_TIMEOUT) => {}
            }
        });
        Ok(Connection {
            stream: TcpStream::from_std(self.stream)?,
            preface: Preface::Pending { bytes: PREFACE_BYTES, timeout },
            _permit: self.permit,
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

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.preface.is_timed_out(cx) {
            // End of file: hyper closes the connection.
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.preface.record_read(buf.filled().len() - before);
        polled
    }
}

impl AsyncWrite for Connection {
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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    const PREFACE: &[u8; PREFACE_BYTES] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    /// Both ends of a connection that was just accepted.
    async fn connect(stop: CancellationToken) -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (stream, _) = accepted.expect("a connection");
        let stream = stream.into_std().expect("a socket");
        let accepted = AcceptedConnection { stream, permit: OpenConnections::default().acquire() };
        (client.expect("a connection"), accepted.into_connection(stop).expect("a socket"))
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

    #[tokio::test]
    async fn a_connection_is_counted_until_it_is_dropped() {
        let open = OpenConnections::default();
        let (first, second) = (open.acquire(), open.clone().acquire());
        assert_eq!(open.count(), 2);
        drop(first);
        assert_eq!(open.count(), 1);
        drop(second);
        assert_eq!(open.count(), 0);
    }
}
