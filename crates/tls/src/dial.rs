//! Client connections: TCP with or without TLS, and Unix sockets.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

use super::client::ClientConnector;

/// TCP probes an idle server after `KEEPALIVE_IDLE`, then every `KEEPALIVE_INTERVAL`, and gives up after
/// `KEEPALIVE_PROBES` unanswered probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;

/// A connection to a server, plain or with TLS.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Timeouts of the steps of a connection. Without them only the caller's deadline applies.
#[derive(Clone, Copy, Debug)]
pub struct DialTimeouts {
    /// For one of several addresses, before trying the next.
    pub address: Duration,
    /// For the only address, or the last one.
    pub last_address: Duration,
    pub tls: Duration,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("cannot resolve its name: {0}")]
    Resolve(#[source] io::Error),
    #[error("no connection: {0}")]
    Connect(#[source] io::Error),
    #[error("the TLS handshake failed: {0}")]
    Tls(#[source] io::Error),
    /// One of [`DialTimeouts`] has passed.
    #[error("cannot connect in time")]
    Timeout,
}

/// Connects to a host, with TLS if there is a connector. Has no deadline of its own.
///
/// # Errors
/// [`DialError`], of the last address if the host has several.
pub async fn dial(
    host: &str,
    port: u16,
    tls: Option<&ClientConnector>,
) -> Result<Box<dyn ByteStream>, DialError> {
    let addresses = lookup_host((host, port)).await.map_err(DialError::Resolve)?;
    dial_addresses(host, addresses.collect(), tls, None).await
}

/// Connects to the first address of `host` that answers, with TLS if there is a connector.
///
/// # Errors
/// [`DialError`] of the last address.
pub async fn dial_addresses(
    host: &str,
    addresses: Vec<SocketAddr>,
    tls: Option<&ClientConnector>,
    timeouts: Option<DialTimeouts>,
) -> Result<Box<dyn ByteStream>, DialError> {
    let stream = tcp(addresses, timeouts).await?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    let handshake = tls.handshake(host, stream);
    let stream = within(timeouts.map(|timeouts| timeouts.tls), handshake, DialError::Tls).await?;
    Ok(Box::new(stream))
}

/// Connects to a Unix socket.
///
/// # Errors
/// If there is no socket, or the server does not accept the connection.
pub async fn dial_unix(path: &Path) -> io::Result<Box<dyn ByteStream>> {
    Ok(Box::new(UnixStream::connect(path).await?))
}

/// Tries the addresses in turn.
async fn tcp(addresses: Vec<SocketAddr>, timeouts: Option<DialTimeouts>) -> Result<TcpStream, DialError> {
    let mut failed = DialError::Connect(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    let mut addresses = addresses.into_iter().peekable();
    while let Some(address) = addresses.next() {
        let is_last = addresses.peek().is_none();
        let limit = timeouts.map(|timeouts| if is_last { timeouts.last_address } else { timeouts.address });
        match within(limit, TcpStream::connect(address), DialError::Connect).await {
            Ok(stream) => {
                set_options(&stream).map_err(DialError::Connect)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

async fn within<T>(
    limit: Option<Duration>,
    step: impl Future<Output = io::Result<T>>,
    failed: fn(io::Error) -> DialError,
) -> Result<T, DialError> {
    let done = match limit {
        Some(limit) => timeout(limit, step).await.map_err(|_| DialError::Timeout)?,
        None => step.await,
    };
    done.map_err(failed)
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    // Nagle's algorithm would delay small messages.
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    Ok(())
}
