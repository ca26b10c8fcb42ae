//! An accepted connection that is counted for as long as it is open.

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

/// How many connections are open somewhere. Clones share the number.
#[derive(Clone, Debug, Default)]
pub(super) struct Load(Arc<AtomicUsize>);

/// One of those connections; it stops being counted when this is dropped.
#[derive(Debug)]
pub(super) struct Seat(Load);

impl Load {
    pub(super) fn open(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn take_seat(&self) -> Seat {
        self.0.fetch_add(1, Ordering::Relaxed);
        Seat(self.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection on its way from the acceptor to a worker, tied to neither's runtime.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) stream: std::net::TcpStream,
    pub(super) seat: Seat,
}

/// A connection of the runtime that serves it.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    greeting: Greeting,
    _seat: Seat,
}

/// Whether the peer has said what every HTTP/2 client says first. Nobody else looks after it until then.
enum Greeting {
    /// So many bytes of it are missing, and this future ends our patience.
    Awaited { bytes: usize, patience: BoxFuture<'static, ()> },
    /// It was heard.
    Heard,
    /// It was not, in time; the connection is at its end.
    Missed,
}

/// Bytes of the client's connection preface (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;
/// Clients greet at once; what takes longer is not one of ours.
const GREET_WITHIN: Duration = Duration::from_secs(10);

impl Accepted {
    /// Ties the connection to the runtime that this runs on. A peer that has not greeted by `stop` is not waited for.
    pub(super) fn settle(self, stop: CancellationToken) -> io::Result<Connection> {
        let patience = Box::pin(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(GREET_WITHIN) => {}
            }
        });
        Ok(Connection {
            stream: TcpStream::from_std(self.stream)?,
            greeting: Greeting::Awaited { bytes: PREFACE_BYTES, patience },
            _seat: self.seat,
        })
    }
}

impl Greeting {
    /// Notes that so many bytes were read.
    fn hear(&mut self, read: usize) {
        if let Self::Awaited { bytes, .. } = self {
            *bytes = bytes.saturating_sub(read);
            if *bytes == 0 {
                *self = Self::Heard;
            }
        }
    }

    fn is_missed(&mut self, cx: &mut Context<'_>) -> bool {
        if let Self::Awaited { patience, .. } = self
            && patience.as_mut().poll(cx).is_ready()
        {
            *self = Self::Missed;
        }
        matches!(self, Self::Missed)
    }
}

impl fmt::Debug for Greeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Awaited { .. } => "Awaited",
            Self::Heard => "Heard",
            Self::Missed => "Missed",
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
        if self.greeting.is_missed(cx) {
            // As if the peer had closed it.
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.greeting.hear(buf.filled().len() - before);
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
