//! The socket to statsd. Opened when there is something to send, and reopened after an error.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UdpSocket, UnixDatagram, lookup_host};
use tokio::time::Instant;

use super::options::StatsdTarget;

/// Pause after the first error. Lines sent meanwhile are lost.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Each error doubles the pause, up to this. A hanging name lookup continues after its attempt, in its own thread: the
/// pauses bound the number of such threads.
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
/// A UDP socket does not notice a lost peer: after this time the name is resolved again.
const MAX_UDP_AGE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) target: StatsdTarget,
    socket: Option<StatsdSocket>,
    pub(super) last_error: String,
    /// Pause after the next error.
    pause: Duration,
    /// No attempt before this time.
    retry_at: Option<Instant>,
}

#[derive(Debug)]
enum StatsdSocket {
    Tcp(TcpStream),
    /// With the time when it was opened.
    Udp(UdpSocket, Instant),
    Unix(UnixDatagram),
}

impl Connection {
    pub(super) fn new(target: StatsdTarget) -> Self {
        Self { target, socket: None, last_error: String::new(), pause: FIRST_PAUSE, retry_at: None }
    }

    /// Closes the socket after an error, and starts a pause.
    pub(super) fn close(&mut self, error: impl ToString) {
        self.socket = None;
        self.last_error = error.to_string();
        self.retry_at = Some(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Sends lines.
    ///
    /// # Errors
    /// If there is no socket, or it takes no data.
    pub(super) async fn send(&mut self, text: &str) -> io::Result<()> {
        let now = Instant::now();
        if self.retry_at.is_some_and(|retry_at| now < retry_at) {
            return Err(ErrorKind::WouldBlock.into());
        }
        match self.try_send(text, now).await {
            Ok(()) => {
                (self.retry_at, self.pause) = (None, FIRST_PAUSE);
                Ok(())
            }
            Err(error) => {
                self.close(&error);
                Err(error)
            }
        }
    }

    async fn try_send(&mut self, text: &str, now: Instant) -> io::Result<()> {
        let is_old = |socket: &StatsdSocket| matches!(socket, StatsdSocket::Udp(_, opened) if now - *opened >= MAX_UDP_AGE);
        let socket = match self.socket.take().filter(|socket| !is_old(socket)) {
            Some(socket) => socket,
            None => connect(&self.target, now).await?,
        };
        self.socket.insert(socket).send(text).await
    }
}

impl StatsdSocket {
    async fn send(&mut self, text: &str) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                refuse_closed(stream)?;
                stream.write_all(format!("{text}\n").as_bytes()).await
            }
            Self::Udp(socket, _) => socket.send(text.as_bytes()).await.map(|_| ()),
            Self::Unix(socket) => socket.send(text.as_bytes()).await.map(|_| ()),
        }
    }
}

/// Fails if the peer has closed the connection: the first write would still succeed, and its lines be lost uncounted.
/// statsd sends nothing, so whatever can be read is discarded.
fn refuse_closed(stream: &TcpStream) -> io::Result<()> {
    let mut discarded = [0; 1_024];
    match stream.try_read(&mut discarded) {
        Ok(0) => Err(io::Error::new(ErrorKind::ConnectionReset, "statsd closed the connection")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}

async fn connect(target: &StatsdTarget, now: Instant) -> io::Result<StatsdSocket> {
    match target {
        StatsdTarget::Tcp(place) => Ok(StatsdSocket::Tcp(TcpStream::connect(place.as_str()).await?)),
        StatsdTarget::Udp(place) => Ok(StatsdSocket::Udp(connect_udp(place).await?, now)),
        StatsdTarget::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.connect(path)?;
            Ok(StatsdSocket::Unix(socket))
        }
    }
}

async fn connect_udp(place: &str) -> io::Result<UdpSocket> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in lookup_host(place).await? {
        let local: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let connecting = async {
            let socket = UdpSocket::bind(local).await?;
            socket.connect(address).await?;
            Ok(socket)
        };
        match connecting.await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_closed_connection_is_noticed_and_made_again_after_the_pause() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut connection = Connection::new(StatsdTarget::Tcp(address.to_string()));
        connection.send("a:1|c").await.expect("sent");
        let (mut accepted, _) = listener.accept().await.expect("a connection");
        let mut line = [0; 6];
        accepted.read_exact(&mut line).await.expect("a line");
        assert_eq!(&line, b"a:1|c\n");
        drop(accepted);
        let Some(StatsdSocket::Tcp(stream)) = &connection.socket else {
            panic!("no stream: {connection:?}");
        };
        stream.readable().await.expect("the end of the connection");
        connection.send("b:1|c").await.expect_err("the end was noticed");
        assert!(connection.last_error.contains("closed"), "{}", connection.last_error);
        let in_pause = connection.send("c:1|c").await.expect_err("a pause");
        assert_eq!(in_pause.kind(), ErrorKind::WouldBlock);
        tokio::time::advance(FIRST_PAUSE).await;
        connection.send("d:1|c").await.expect("sent");
        let (mut accepted, _) = listener.accept().await.expect("a second connection");
        accepted.read_exact(&mut line).await.expect("a line");
        assert_eq!(&line, b"d:1|c\n");
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_double_up_to_the_longest_and_begin_again_after_a_success() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("dsd.socket");
        let mut connection = Connection::new(StatsdTarget::Unix(path.clone()));
        for seconds in [1, 2, 4, 8, 16, 16] {
            connection.send("a:1|c").await.expect_err("no socket is there");
            let retry_at = connection.retry_at.expect("a pause");
            assert_eq!(retry_at - Instant::now(), Duration::from_secs(seconds));
            tokio::time::advance(Duration::from_secs(seconds)).await;
        }
        let socket = UnixDatagram::bind(&path).expect("a socket");
        connection.send("b:1|c").await.expect("sent");
        let mut line = [0; 16];
        let length = socket.recv(&mut line).await.expect("a datagram");
        assert_eq!(&line[..length], b"b:1|c");
        assert_eq!(connection.pause, FIRST_PAUSE);
    }
}
