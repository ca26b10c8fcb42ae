//! A client's socket. Writes fail if the client does not read, and the socket can move to another runtime.

use std::io;
use std::os::fd::AsFd as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tls::CertificateFacts;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::listener::PortStream;

/// How long a write can wait for a client that does not read.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client can take to read its last answer.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// Set when another runtime takes over a socket. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MovedFlag(Arc<AtomicBool>);

impl MovedFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        let has_moved = self.0.load(Ordering::Relaxed);
        if has_moved {
            self.0.store(false, Ordering::Relaxed);
        }
        has_moved
    }
}

/// A client's socket. It registers with another runtime at the first read or write after its flag is set.
#[derive(Debug)]
pub(crate) struct ClientSocket {
    stream: PortStream,
    has_moved: MovedFlag,
    /// Runs while the socket accepts no data. When it ends, the connection is closed.
    blocked: Option<Pin<Box<Sleep>>>,
}

impl ClientSocket {
    pub(crate) fn moved_flag(&self) -> MovedFlag {
        self.has_moved.clone()
    }

    /// Turns a write that has been pending too long into an error.
    fn unless_blocked(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if polled.is_ready() {
            self.blocked = None;
            return polled;
        }
        let timer = self.blocked.get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_TIMEOUT)));
        timer.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The socket, on the current runtime.
    fn stream(&mut self) -> io::Result<Pin<&mut PortStream>> {
        if self.has_moved.take() {
            self.stream = registered(&self.stream)?;
            self.blocked = None;
        }
        Ok(Pin::new(&mut self.stream))
    }
}

/// Returns the same socket, registered with the current runtime. Dropping `stream` deregisters it from the old one.
fn registered(stream: &PortStream) -> io::Result<PortStream> {
    Ok(match stream {
        Either::Left(stream) => {
            Either::Left(TcpStream::from_std(stream.as_fd().try_clone_to_owned()?.into())?)
        }
        Either::Right(stream) => {
            Either::Right(UnixStream::from_std(stream.as_fd().try_clone_to_owned()?.into())?)
        }
    })
}

impl From<PortStream> for ClientSocket {
    fn from(stream: PortStream) -> Self {
        Self { stream, has_moved: MovedFlag::default(), blocked: None }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = self.stream()?.poll_write(cx, buf);
        self.unless_blocked(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = self.stream()?.poll_write_vectored(cx, bufs);
        self.unless_blocked(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Ends a connection after its last answer: reads and drops what the client still sends, until it closes or has sent
/// `most_bytes`. If a socket is closed with unread bytes, the system resets the connection: a client that is still
/// writing then gets an error instead of the answer, and a proxy takes the server for unavailable.
pub(crate) async fn linger<IO: AsyncRead + AsyncWrite + Unpin>(mut stream: IO, most_bytes: u64) {
    let until_closed = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(most_bytes), &mut tokio::io::sink()).await
    };
    let ended: io::Result<_> = timeout(LINGER, until_closed).await.unwrap_or(Ok(0));
    // The client has gone, which is all this waited for.
    let _ = ended;
}

/// A TLS session. Its handshake runs on a different runtime than its calls.
pub(crate) type TlsSession = Box<TlsStream<ClientSocket>>;

/// What the client's certificate says; `None` if the port asks for none.
pub(crate) fn client_certificate(session: &TlsSession) -> Option<CertificateFacts> {
    let (_, connection) = session.get_ref();
    CertificateFacts::of_der(connection.peer_certificates()?.first()?).ok()
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    /// Both ends of a connection.
    async fn connect() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.expect("a connection"), accepted.expect("a connection").0)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_closed() {
        let (client, server) = connect().await;
        let start = Instant::now();
        let written = ClientSocket::from(PortStream::Left(server)).write_all(&vec![0; 64 << 20]).await;
        let error = written.expect_err("more than the sockets hold");
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, WRITE_TIMEOUT));
        drop(client);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_end_is_closed_after_a_second_or_the_bytes() {
        const MOST_BYTES: u64 = 1 << 20;
        let start = Instant::now();
        let (silent, server) = connect().await;
        linger(server, MOST_BYTES).await;
        assert_eq!(start.elapsed(), LINGER);
        drop(silent);

        let (mut client, server) = tokio::io::duplex(1_024);
        let send = async {
            let mut sent = 0;
            while client.write_all(&[0; 1_024]).await.is_ok() {
                sent += 1_024;
            }
            sent
        };
        let ((), sent) = tokio::join!(linger(server, MOST_BYTES), send);
        assert_eq!(start.elapsed(), LINGER, "at once");
        assert!((MOST_BYTES..MOST_BYTES + 16 * 1_024).contains(&sent), "{sent}");
    }

    #[test]
    fn a_socket_moves_to_another_runtime() {
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().expect("a runtime")
        };
        let (first, second) = (runtime(), runtime());
        let (mut client, mut server) = first.block_on(async {
            let (client, server) = connect().await;
            (client, ClientSocket::from(PortStream::Left(server)))
        });
        server.moved_flag().set();
        let mut received = [0; 4];
        second.block_on(async {
            server.write_all(b"kept").await.expect("an open connection");
            // The client answers while its runtime does not run the server's.
            client.try_write(b"more").expect("an open connection");
            server.read_exact(&mut received).await.expect("an open connection");
        });
        assert_eq!(&received, b"more");
        first.block_on(client.read_exact(&mut received)).expect("an open connection");
        assert_eq!(&received, b"kept");
    }
}
