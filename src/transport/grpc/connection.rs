//! A client's connection: counted while it is open, closed if the client does not send the HTTP/2 preface in time.

use std::fmt;
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

/// A connection between acceptor and worker, registered with the runtime of neither.
#[derive(Debug)]
pub(super) struct AcceptedConnection {
    pub(super) stream: std::net::TcpStream,
    pub(super) permit: ConnectionPermit,
}

/// A connection that a worker serves.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    preface: Preface,
    _permit: ConnectionPermit,
}

/// The client's connection preface. hyper has no timeout for it, and sends no keep-alive PING before it.
enum Preface {
    /// `bytes` are missing; `timeout` resolves when the connection is to be closed.
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

impl fmt::Debug for Preface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending { .. } => "Pending",
            Self::Received => "Received",
            Self::TimedOut => "TimedOut",
        })
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
