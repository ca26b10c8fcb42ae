//! An accepted connection that is counted for as long as it is open.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
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
    _seat: Seat,
}

impl TryFrom<Accepted> for Connection {
    type Error = io::Error;

    /// Ties the connection to the runtime that this runs on.
    fn try_from(accepted: Accepted) -> io::Result<Self> {
        Ok(Self { stream: TcpStream::from_std(accepted.stream)?, _seat: accepted.seat })
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
        Pin::new(&mut self.stream).poll_read(cx, buf)
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
