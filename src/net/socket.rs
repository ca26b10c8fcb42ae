//! The socket of a client, which fails when the client does not read. A socket with TLS can move to another runtime.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::listener::PortStream;

/// How long a write may wait for a client that does not read from its socket.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// A socket on the current runtime.
#[derive(Debug)]
pub(crate) struct ClientSocket<S> {
    stream: S,
    /// Runs while the socket accepts no data. When it ends, the connection is closed.
    blocked: Option<Pin<Box<Sleep>>>,
}

impl<S> ClientSocket<S> {
    /// Turns a write that has been pending for too long into an error.
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
}

impl<S: AsyncRead + AsyncWrite> From<S> for ClientSocket<S> {
    fn from(stream: S) -> Self {
        Self { stream, blocked: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ClientSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ClientSocket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.unless_blocked(cx, polled)
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
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.unless_blocked(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The socket of a TLS session. The handshake is done on one runtime and the calls are served on another. The session
/// owns its socket, so the socket must be able to move.
#[derive(Debug)]
pub(crate) struct MovableSocket(Option<ClientSocket<PortStream>>);

/// A socket that is not registered with a runtime.
#[derive(Debug)]
pub(super) enum DetachedSocket {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

/// A TLS session, and the socket that was taken from it.
#[derive(Debug)]
pub(crate) struct DetachedSession {
    socket: DetachedSocket,
    session: Box<TlsStream<MovableSocket>>,
}

impl DetachedSocket {
    /// Takes the socket of a connection off the current runtime.
    pub(super) fn detach(stream: PortStream) -> io::Result<Self> {
        match stream {
            Either::Left(stream) => stream.into_std().map(Self::Tcp),
            Either::Right(stream) => stream.into_std().map(Self::Unix),
        }
    }

    /// Registers the socket with the current runtime.
    fn attach(self) -> io::Result<ClientSocket<PortStream>> {
        Ok(ClientSocket::from(match self {
            Self::Tcp(stream) => Either::Left(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Either::Right(UnixStream::from_std(stream)?),
        }))
    }
}

impl DetachedSession {
    /// Takes the session off the current runtime.
    pub(super) fn detach(session: TlsStream<MovableSocket>) -> io::Result<Self> {
        let mut session = Box::new(session);
        let socket = session.get_mut().0.detach()?;
        Ok(Self { socket, session })
    }

    /// Registers the session with the current runtime.
    pub(crate) fn attach(self) -> io::Result<Box<TlsStream<MovableSocket>>> {
        let Self { socket, mut session } = self;
        *session.get_mut().0 = MovableSocket::attach(socket)?;
        Ok(session)
    }
}

impl MovableSocket {
    /// Takes the socket off its runtime. Reads and writes fail from now on.
    fn detach(&mut self) -> io::Result<DetachedSocket> {
        DetachedSocket::detach(self.0.take().ok_or(io::ErrorKind::NotConnected)?.stream)
    }

    /// Registers the socket with the current runtime.
    pub(super) fn attach(socket: DetachedSocket) -> io::Result<Self> {
        socket.attach().map(|socket| Self(Some(socket)))
    }

    fn socket(&mut self) -> io::Result<Pin<&mut ClientSocket<PortStream>>> {
        self.0.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for MovableSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.socket()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for MovableSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.socket()?.poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
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
        let written = ClientSocket::from(server).write_all(&vec![0; 64 << 20]).await;
        let error = written.expect_err("more than the sockets hold");
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, WRITE_TIMEOUT));
        drop(client);
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
            let socket = DetachedSocket::detach(PortStream::Left(server)).expect("a socket");
            (client, MovableSocket::attach(socket).expect("a socket"))
        });
        let stream = server.detach().expect("a socket");
        let error = second.block_on(server.write_all(b"lost")).expect_err("no socket");
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        second.block_on(async {
            let mut server = MovableSocket::attach(stream).expect("a socket");
            server.write_all(b"kept").await.expect("an open connection");
        });
        let mut received = [0; 4];
        first.block_on(client.read_exact(&mut received)).expect("an open connection");
        assert_eq!(&received, b"kept");
    }
}
