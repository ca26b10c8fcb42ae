//! A TLS connection that keeps what the server says when it refuses the client. In TLS 1.3 that comes after the
//! handshake, as an alert where the first answer is expected, and the libraries above say only that the connection has
//! ended.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::Error as TlsError;

/// The alert of one connection.
#[derive(Clone, Debug, Default)]
pub struct NotedAlert(Arc<Mutex<Option<TlsError>>>);

impl NotedAlert {
    /// Why the server refused the connection, if it did.
    #[must_use]
    pub fn get(&self) -> Option<TlsError> {
        self.0.lock().clone()
    }

    fn note_alert(&self, error: &io::Error) {
        let alert = error.get_ref().and_then(|cause| cause.downcast_ref::<TlsError>());
        if let Some(alert @ TlsError::AlertReceived(_)) = alert {
            *self.0.lock() = Some(alert.clone());
        }
    }
}

/// Passes everything on.
#[derive(Debug)]
pub struct NotesAlert {
    stream: TlsStream<TcpStream>,
    noted: NotedAlert,
}

impl NotesAlert {
    #[must_use]
    pub fn new(stream: TlsStream<TcpStream>, noted: NotedAlert) -> Self {
        Self { stream, noted }
    }
}

impl AsyncRead for NotesAlert {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
        Poll::Ready(read.inspect_err(|error| this.noted.note_alert(error)))
    }
}

impl AsyncWrite for NotesAlert {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
