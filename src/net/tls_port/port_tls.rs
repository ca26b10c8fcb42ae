//! TLS on one port: the current certificate, and the clients' handshakes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base::log_throttle::LogThrottle;
use tls::LoadedTls;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::timeout_at;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::server::TlsStream;

use super::failure::HandshakeFailure;
use super::handshakes::{HandshakePlace, Handshakes};
use crate::net::admission::ConnectionBounds;
use crate::net::listener::PortStream;
use crate::net::socket::{ClientSocket, TlsSession, linger};
use crate::telemetry::metrics::{HandshakeResult, TlsMeter};

/// From the accepted connection until the handshake ends.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum bytes read and dropped after an alert, on the one handshake thread.
const LINGER_BYTES: u64 = 64 * 1024;

/// TLS on one port. Clones share it.
#[derive(Clone, Debug)]
pub struct PortTls(Arc<TlsState>);

#[derive(Debug)]
struct TlsState {
    /// For new handshakes. Open connections keep the configuration of their handshake.
    config: ArcSwap<ServerConfig>,
    handshakes: Arc<Handshakes>,
    runtime: Handle,
    meter: TlsMeter,
    /// Log throttles, in the order of [`HandshakeResult::ALL`].
    lines: [LogThrottle; HandshakeResult::ALL.len()],
}

/// A handshake that has a slot.
#[derive(Debug)]
pub(crate) struct Handshake {
    tls: PortTls,
    place: HandshakePlace,
    client: IpAddr,
}

impl PortTls {
    /// `runtime`: from the handshake [thread](super::HandshakeThread).
    pub fn new(loaded: &LoadedTls, bounds: ConnectionBounds, meter: TlsMeter, runtime: Handle) -> Self {
        Self(Arc::new(TlsState {
            config: ArcSwap::new(Arc::clone(&loaded.config)),
            handshakes: Arc::new(Handshakes::new(bounds)),
            runtime,
            meter,
            lines: <[LogThrottle; HandshakeResult::ALL.len()]>::default(),
        }))
    }

    /// Applies new certificates to handshakes that start later.
    pub fn replace(&self, loaded: &LoadedTls) {
        self.0.config.store(Arc::clone(&loaded.config));
    }

    /// Starts a handshake with `client`; `None` if too many are unfinished.
    pub(crate) fn begin(&self, client: IpAddr) -> Option<Handshake> {
        match self.0.handshakes.begin(client) {
            Some(place) => Some(Handshake { tls: self.clone(), place, client }),
            None => {
                let reason = "too many handshakes are not finished";
                self.record(&HandshakeFailure::new(HandshakeResult::Refused, reason), client);
                None
            }
        }
    }

    fn record(&self, failure: &HandshakeFailure, client: IpAddr) {
        let state = &*self.0;
        state.meter.handshakes.count(failure.result);
        let Some(handshakes) = state.lines[failure.result as usize].count() else { return };
        let (port, reason) = (state.meter.port.into_str(), &failure.reason);
        tracing::warn!(port, handshakes, %client, last = %reason, "TLS handshakes failed");
    }
}

impl Handshake {
    /// Does the handshake on the handshake thread. A client that fails gets an alert, is counted and logged, and its
    /// connection is closed. The handshake ends when this future is dropped.
    pub(crate) async fn run(self, stream: PortStream) -> Option<TlsSession> {
        let socket = ClientSocket::from(stream);
        let has_moved = socket.moved_flag();
        has_moved.set();
        let runtime = self.tls.0.runtime.clone();
        // A set, because it aborts its task when dropped.
        let mut task = JoinSet::new();
        task.spawn_on(self.shake_hands(socket), &runtime);
        match task.join_next().await? {
            Ok(session) => {
                has_moved.set();
                session.map(Box::new)
            }
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // Cancelled: the thread is ending.
                Err(_) => None,
            },
        }
    }

    /// Does the handshake on this thread.
    async fn shake_hands<IO>(self, stream: IO) -> Option<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let Self { tls, place, client } = self;
        let accepted = timeout_at(place.since + HANDSHAKE_TIMEOUT, accept(&tls.0.config, stream));
        let failure = tokio::select! {
            accepted = accepted => match accepted {
                Ok(Ok(stream)) => {
                    tls.0.meter.handshakes.count(HandshakeResult::Ok);
                    return Some(stream);
                }
                Ok(Err((failure, stream))) => {
                    tls.record(&failure, client);
                    if let Some(stream) = stream {
                        // The client may not have read the alert: in TLS 1.3 it has already sent its first request.
                        place.displaced.run_until_cancelled(linger(stream, LINGER_BYTES)).await;
                    }
                    return None;
                }
                Err(_) => HandshakeFailure::new(
                    HandshakeResult::Timeout,
                    format!("not finished within {HANDSHAKE_TIMEOUT:?}"),
                ),
            },
            () = place.displaced.cancelled() => {
                HandshakeFailure::new(HandshakeResult::Displaced, "replaced by a newer handshake")
            }
        };
        tls.record(&failure, client);
        None
    }
}

/// Returns the session, or the failure with the stream, on which the client may not have read the alert yet.
async fn accept<IO>(
    config: &ArcSwap<ServerConfig>,
    stream: IO,
) -> Result<TlsStream<IO>, (HandshakeFailure, Option<IO>)>
where
    IO: AsyncRead + AsyncWrite + Unpin,
{
    let mut acceptor = LazyConfigAcceptor::new(Acceptor::default(), stream);
    let hello = match (&mut acceptor).await {
        Ok(hello) => hello,
        Err(error) => {
            let failure = HandshakeFailure::of_error(&error, HandshakeResult::Disconnected);
            return Err((failure, acceptor.take_io()));
        }
    };
    let answered = hello.into_stream(config.load_full()).into_fallible().await;
    answered.map_err(|(error, stream)| {
        (HandshakeFailure::of_error(&error, HandshakeResult::Abandoned), Some(stream))
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::Instant;

    use super::*;
    use crate::net::socket::LINGER;
    use crate::net::tls_port::testing::TestPort;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const BOUNDS: ConnectionBounds = ConnectionBounds { total: 4, per_address: 4 };

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_finish_is_closed_after_the_timeout() {
        let port = TestPort::new(BOUNDS);
        // Nothing, the start of a record, and a byte each second.
        let (silent, _silent_client) = tokio::io::duplex(1_024);
        let (half, mut half_client) = tokio::io::duplex(1_024);
        half_client.write_all(&[0x16, 0x03, 0x01, 0x01, 0x00]).await.expect("an open connection");
        let (slow, mut slow_client) = tokio::io::duplex(1_024);
        slow_client.write_all(&[0x16, 0x03, 0x01, 0x01, 0x00]).await.expect("an open connection");
        let trickle = async {
            while slow_client.write_all(&[1]).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let start = Instant::now();
        let run = |stream| port.tls.begin(CLIENT).expect("a place").shake_hands(stream);
        let ended = async { tokio::join!(run(silent), run(half), run(slow)) };
        let ((silent, half, slow), ()) = tokio::join!(ended, trickle);
        assert!(silent.is_none() && half.is_none() && slow.is_none());
        let ended_after = start.elapsed();
        assert!((HANDSHAKE_TIMEOUT..HANDSHAKE_TIMEOUT + Duration::from_secs(2)).contains(&ended_after));
        assert_eq!((port.handshakes("timeout"), port.handshakes("ok")), (3, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_displaced_handshake_ends_at_once() {
        let port = TestPort::new(ConnectionBounds { total: 1, per_address: 1 });
        let (stream, _client) = tokio::io::duplex(1_024);
        let first = port.tls.begin(CLIENT).expect("a place");
        assert!(port.tls.begin(CLIENT).is_none(), "the first is young");
        let displace = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            port.tls.begin(CLIENT).expect("the place of the first")
        };
        let start = Instant::now();
        let (ended, _second) = tokio::join!(first.shake_hands(stream), displace);
        assert!(ended.is_none() && start.elapsed() == Duration::from_secs(1), "{:?}", start.elapsed());
        assert_eq!((port.handshakes("displaced"), port.handshakes("refused")), (1, 1));
    }

    /// The client keeps sending after bytes that are not TLS; they are read, so that the alert is not lost.
    #[tokio::test(start_paused = true)]
    async fn a_refused_client_can_read_the_alert_and_is_closed_after_a_second() {
        let port = TestPort::new(BOUNDS);
        let (stream, mut client) = tokio::io::duplex(64 * 1024);
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("an open connection");
        let start = Instant::now();
        let handshake = port.tls.begin(CLIENT).expect("a place").shake_hands(stream);
        let read = async {
            let mut alert = [0; 7];
            client.read_exact(&mut alert).await.expect("an alert");
            client.write_all(b"more").await.expect("an open connection");
            // A record of type 21: a fatal alert.
            assert_eq!((alert[0], alert[5]), (21, 2));
        };
        let (ended, ()) = tokio::join!(handshake, read);
        assert!(ended.is_none());
        assert_eq!((start.elapsed(), port.handshakes("not_tls")), (LINGER, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_client_that_sends_on_is_closed_after_64_kib() {
        let port = TestPort::new(BOUNDS);
        let (stream, mut client) = tokio::io::duplex(1_024);
        let start = Instant::now();
        let handshake = port.tls.begin(CLIENT).expect("a place").shake_hands(stream);
        let send = async {
            let mut sent = 0;
            while client.write_all(&[b'x'; 1_024]).await.is_ok() {
                sent += 1_024;
            }
            sent
        };
        let (ended, sent) = tokio::join!(handshake, send);
        assert!(ended.is_none() && start.elapsed() < LINGER);
        // What was read for the handshake, and what the pipe holds, adds to it.
        assert!((LINGER_BYTES..2 * LINGER_BYTES).contains(&sent), "{sent}");
    }

    /// What the service has done for a client that leaves decides: the second one made it sign.
    #[tokio::test]
    async fn a_client_that_leaves_is_counted_by_what_it_has_cost() {
        let port = TestPort::new(BOUNDS);
        let (stream, client) = tokio::io::duplex(64 * 1024);
        drop(client);
        assert!(port.tls.begin(CLIENT).expect("a place").shake_hands(stream).await.is_none());
        assert_eq!((port.handshakes("disconnected"), port.handshakes("abandoned")), (1, 0));

        let (stream, mut client) = tokio::io::duplex(64 * 1024);
        let leave = async {
            // Room only for the ClientHello: the client's own handshake fails once it has sent it.
            let (hello, mut recorded) = tokio::io::duplex(64 * 1024);
            let mut bytes = vec![0; 4 * 1024];
            let sent = async {
                let read = recorded.read(&mut bytes).await.expect("a ClientHello");
                drop(recorded);
                read
            };
            let (failed, read) = tokio::join!(port.connect(hello), sent);
            assert!(failed.is_err());
            client.write_all(&bytes[..read]).await.expect("an open connection");
            client.read_u8().await.expect("the answer to the ClientHello");
            drop(client);
        };
        let handshake = port.tls.begin(CLIENT).expect("a place").shake_hands(stream);
        let (ended, ()) = tokio::join!(handshake, leave);
        assert!(ended.is_none());
        assert_eq!((port.handshakes("disconnected"), port.handshakes("abandoned")), (1, 1));
    }

    #[tokio::test]
    async fn a_finished_handshake_frees_its_place() {
        let port = TestPort::new(ConnectionBounds { total: 1, per_address: 1 });
        for handshakes in 1..=3 {
            let (stream, client) = tokio::io::duplex(64 * 1024);
            let handshake = port.tls.begin(CLIENT).expect("a place").shake_hands(stream);
            let (server, client) = tokio::join!(handshake, port.connect(client));
            client.expect("a handshake");
            assert!(server.is_some());
            assert_eq!(port.handshakes("ok"), handshakes);
        }
    }
}
