//! A connection that keeps how the server ended it. The libraries above say only that it has ended, if that was before
//! they sent a request.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::farewell::{Farewell, FrameWatch};

/// The end of one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct NotedEnd(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    /// Whether the server has sent anything, a TLS handshake aside.
    has_spoken: bool,
    /// The first reason.
    reason: Option<String>,
    frames: FrameWatch,
}

impl NotedEnd {
    /// How the connection ended; `None` while it is open.
    pub fn reason(&self) -> Option<String> {
        self.0.lock().reason.clone()
    }

    /// Whether the connection has ended before the server sent anything.
    pub fn is_silent(&self) -> bool {
        let noted = self.0.lock();
        noted.reason.is_some() && !noted.has_spoken
    }

    /// What the server said of the end.
    pub fn farewell(&self) -> Option<Farewell> {
        self.0.lock().frames.farewell.clone()
    }

    fn note_bytes(&self, bytes: &[u8]) {
        let mut noted = self.0.lock();
        noted.has_spoken = true;
        noted.frames.read_bytes(bytes);
    }

    fn ended(&self, reason: impl Into<String>) {
        self.0.lock().reason.get_or_insert_with(|| reason.into());
    }

    fn failed(&self, error: &io::Error) {
        self.ended(error.to_string());
    }
}

/// Passes everything on.
pub(super) struct NotesEnd<S> {
    stream: S,
    noted: NotedEnd,
}

impl<S> NotesEnd<S> {
    pub fn new(stream: S, noted: NotedEnd) -> Self {
        Self { stream, noted }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for NotesEnd<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
        match &read {
            Ok(()) if buf.filled().len() > before => this.noted.note_bytes(&buf.filled()[before..]),
            Ok(()) => this.noted.ended("the server closed it"),
            Err(error) => this.noted.failed(error),
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for NotesEnd<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes));
        Poll::Ready(written.inspect_err(|error| this.noted.failed(error)))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = ready!(Pin::new(&mut this.stream).poll_flush(cx));
        Poll::Ready(flushed.inspect_err(|error| this.noted.failed(error)))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_connection_that_is_closed_at_once_is_silent() {
        let (server, client) = duplex(64);
        let noted = NotedEnd::default();
        let mut client = NotesEnd::new(client, noted.clone());
        assert!(!noted.is_silent());
        drop(server);
        assert_eq!(client.read(&mut [0; 8]).await.expect("the end"), 0);
        assert_eq!(noted.reason().as_deref(), Some("the server closed it"));
        assert!(noted.is_silent());
    }

    #[tokio::test]
    async fn the_first_reason_counts() {
        let (mut server, client) = duplex(64);
        let noted = NotedEnd::default();
        let mut client = NotesEnd::new(client, noted.clone());
        server.write_all(b"hello").await.expect("room");
        drop(server);
        assert_eq!(client.read(&mut [0; 8]).await.expect("bytes"), 5);
        assert!(client.write_all(b"x").await.is_err());
        assert_eq!(client.read(&mut [0; 8]).await.expect("the end"), 0);
        assert_eq!(noted.reason().as_deref(), Some(io::ErrorKind::BrokenPipe.to_string().as_str()));
        assert!(!noted.is_silent());
    }
}
