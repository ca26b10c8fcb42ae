//! A TLS connection that keeps what the server says when it refuses the client. In TLS 1.3 that comes after the
//! handshake, as an alert where the first answer is expected, and the libraries above say only that the connection has
//! ended.

use std::collections::VecDeque;
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

/// Passes everything on. After a failed write it reads what the server has sent: a server that refuses the client sends
/// its alert and closes, so the client's next write can fail before the alert is read.
#[derive(Debug)]
pub struct NotesAlert<S = TcpStream> {
    stream: TlsStream<S>,
    noted: NotedAlert,
    /// Data that was read after a failed write, and not yet taken.
    unread: VecDeque<u8>,
}

/// The most data that is read after a failed write. An alert needs much less.
const MAX_UNREAD: usize = 16 * 1024;

impl<S: AsyncRead + AsyncWrite + Unpin> NotesAlert<S> {
    #[must_use]
    pub fn new(stream: TlsStream<S>, noted: NotedAlert) -> Self {
        Self { stream, noted, unread: VecDeque::new() }
    }

    /// Reads until there is nothing more at the moment, or an error, which may be the alert.
    fn read_last_words(&mut self, cx: &mut Context<'_>) {
        let mut bytes = [0; 1_024];
        while self.unread.len() < MAX_UNREAD {
            let mut buf = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buf) {
                Poll::Ready(Ok(())) if !buf.filled().is_empty() => self.unread.extend(buf.filled()),
                Poll::Ready(Err(error)) => return self.noted.note_alert(&error),
                Poll::Ready(Ok(())) | Poll::Pending => return,
            }
        }
    }

    fn checked<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = &written {
            self.read_last_words(cx);
        }
        written
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for NotesAlert<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.unread.is_empty() {
            let taken = this.unread.len().min(buf.remaining());
            this.unread.drain(..taken).for_each(|byte| buf.put_slice(&[byte]));
            return Poll::Ready(Ok(()));
        }
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, buf));
        Poll::Ready(read.inspect_err(|error| this.noted.note_alert(error)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for NotesAlert<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.checked(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.checked(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.checked(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio_rustls::rustls::crypto::ring;
    use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
    use tokio_rustls::rustls::server::WebPkiClientVerifier;
    use tokio_rustls::rustls::version::TLS13;
    use tokio_rustls::rustls::{AlertDescription, ClientConfig, RootCertStore, ServerConfig};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    /// A connection whose writes fail on demand, as those to a server that has closed.
    #[derive(Debug)]
    struct Closable {
        stream: DuplexStream,
        is_closed: bool,
    }

    impl AsyncRead for Closable {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for Closable {
        fn poll_write(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if self.is_closed {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            Pin::new(&mut self.stream).poll_write(cx, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }

    /// Both ends of TLS 1.3, in which the server may ask for the client's certificate; the client has none.
    fn ends(asks_for_certificate: bool) -> (TlsAcceptor, TlsConnector) {
        let key = KeyPair::generate().expect("a key");
        let certificate = CertificateParams::new(["server".to_owned()]).expect("a name");
        let certificate = certificate.self_signed(&key).expect("a certificate").der().clone();
        let mut trusted = RootCertStore::empty();
        trusted.add(certificate.clone()).expect("an authority");
        let trusted = Arc::new(trusted);
        let provider = Arc::new(ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3");
        let server = if asks_for_certificate {
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::clone(&trusted), Arc::clone(&provider));
            server.with_client_cert_verifier(verifier.build().expect("an authority"))
        } else {
            server.with_no_client_auth()
        };
        let private_key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let server = server.with_single_cert(vec![certificate], private_key).expect("they belong together");
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(trusted)
            .with_no_client_auth();
        (TlsAcceptor::from(Arc::new(server)), TlsConnector::from(Arc::new(client)))
    }

    async fn connected(
        asks: bool,
    ) -> (io::Result<tokio_rustls::server::TlsStream<DuplexStream>>, NotesAlert<Closable>) {
        let (acceptor, connector) = ends(asks);
        let (near, far) = duplex(1 << 16);
        let name = ServerName::try_from("server").expect("a name");
        let near = Closable { stream: near, is_closed: false };
        let (client, server) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        (server, NotesAlert::new(client.expect("the client is done first"), NotedAlert::default()))
    }

    #[tokio::test]
    async fn the_alert_is_noted_if_a_write_fails_before_it_is_read() {
        let (server, mut client) = connected(true).await;
        server.expect_err("the client has no certificate");
        client.stream.get_mut().0.is_closed = true;
        client.write_all(b"hello").await.expect_err("the server has closed");
        let alert = client.noted.get();
        assert_eq!(alert, Some(TlsError::AlertReceived(AlertDescription::CertificateRequired)));
    }

    #[tokio::test]
    async fn data_that_was_read_after_a_failed_write_is_not_lost() {
        let (server, mut client) = connected(false).await;
        let mut server = server.expect("a session");
        server.write_all(b"goodbye").await.expect("room");
        client.stream.get_mut().0.is_closed = true;
        client.write_all(b"hello").await.expect_err("the server has closed");
        assert_eq!(client.noted.get(), None);
        let (mut first, mut rest) = ([0; 4], [0; 3]);
        client.read_exact(&mut first).await.expect("data");
        client.read_exact(&mut rest).await.expect("data");
        assert_eq!((&first, &rest), (b"good", b"bye"));
    }
}
