//! Binds a port to a TCP address, a host name or a Unix socket, and accepts its connections. An error of one connection
//! does not end it.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_util::either::Either;

use super::Admission;
use super::unix_socket::{BACKLOG, SocketAccess, SocketFile, bind_unix};
use crate::telemetry::metrics::CloseReason;

/// Pause after an error that would recur on an immediate retry, such as a lack of file descriptors.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Time limit for resolving a host name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
const SOCKET_SCHEME: &str = "unix:";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    /// A host name, resolved when the port is bound, and a port.
    Name(String, u16),
    /// An absolute path.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Parses an IP address or a host name with a port, or `unix:` and an absolute path.
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(SOCKET_SCHEME) {
            Some(path) => Path::new(path).is_absolute().then(|| Self::Unix(PathBuf::from(path))),
            None => text.parse().ok().map(Self::Tcp).or_else(|| parse_name(text)),
        }
    }

    /// Returns the TCP addresses to try, in order; none for a Unix socket.
    ///
    /// # Errors
    /// If the name cannot be resolved.
    pub async fn tcp_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Tcp(address) => Ok(vec![*address]),
            Self::Name(host, port) => {
                let found = timeout(LOOKUP_TIMEOUT, lookup_host((host.as_str(), *port))).await;
                Ok(found.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))?.collect())
            }
            Self::Unix(_) => Ok(Vec::new()),
        }
    }
}

/// Parses a host name and a port. Only digits and dots would be a mistyped IP address.
fn parse_name(text: &str) -> Option<ListenAddress> {
    let (host, port) = text.rsplit_once(':')?;
    let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        && host.bytes().any(|byte| byte.is_ascii_alphabetic());
    let port = port.parse().ok().filter(|_| is_name)?;
    Some(ListenAddress::Name(host.to_owned(), port))
}

/// Listens on the first address that can be bound.
///
/// # Errors
/// If the name cannot be resolved, or why the last address cannot be bound.
async fn listen_tcp(address: &ListenAddress, options: ListenOptions) -> io::Result<TcpListener> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for candidate in address.tcp_addresses().await? {
        match listen(candidate, options) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Name(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{SOCKET_SCHEME}{}", path.display()),
        }
    }
}

pub(crate) type PortStream = Either<TcpStream, UnixStream>;

/// A bound port. Dropping it removes its Unix socket file.
#[derive(Debug)]
pub struct PortListener(Socket);

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl PortListener {
    /// Listens on the address. The options apply to TCP: a Unix socket has one listener. `access` applies to Unix
    /// sockets.
    ///
    /// # Errors
    /// If the address is in use, or the system refuses it.
    pub async fn bind(
        address: &ListenAddress,
        options: ListenOptions,
        access: SocketAccess,
    ) -> io::Result<Self> {
        Ok(Self(match address {
            ListenAddress::Tcp(_) | ListenAddress::Name(..) => {
                Socket::Tcp(listen_tcp(address, options).await?)
            }
            ListenAddress::Unix(path) => {
                let (listener, file) = bind_unix(path, access).await?;
                Socket::Unix(listener, file)
            }
        }))
    }

    /// Returns the bound address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// If the system does not report an address.
    pub fn address(&self) -> io::Result<ListenAddress> {
        match &self.0 {
            Socket::Tcp(listener) => listener.local_addr().map(ListenAddress::Tcp),
            Socket::Unix(_, file) => Ok(ListenAddress::Unix(file.path.clone())),
        }
    }

    /// Wraps a bound TCP port.
    #[cfg(test)]
    pub(crate) fn of_tcp(listener: TcpListener) -> Self {
        Self(Socket::Tcp(listener))
    }

    /// Returns the next connection, and its client's address. Does not fail: system errors are logged and retried.
    pub(crate) async fn next_connection(&self, admission: &Admission) -> (PortStream, IpAddr) {
        loop {
            match self.accept().await {
                Ok(accepted) => return accepted,
                Err(error) if is_error_of_one_client(error.kind()) => {}
                Err(error) => {
                    admission.record(CloseReason::Accept, Some(&error));
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// All clients of a Unix socket count as one address.
    async fn accept(&self) -> io::Result<(PortStream, IpAddr)> {
        match &self.0 {
            Socket::Tcp(listener) => {
                let (stream, client) = listener.accept().await?;
                // Answers are small and must not wait for more data. Fails if the client has already disconnected.
                stream.set_nodelay(true).map_err(|_| ErrorKind::ConnectionAborted)?;
                Ok((Either::Left(stream), client.ip()))
            }
            Socket::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Either::Right(stream), Ipv4Addr::LOCALHOST.into()))
            }
        }
    }
}

/// How to bind the TCP ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenOptions {
    /// `true` if another process of the same user can bind the same address, if it also asks to (`SO_REUSEPORT`).
    pub reuse_port: bool,
}

/// Listens on a TCP address.
///
/// # Errors
/// If the address is in use, or the system refuses it.
fn listen(address: SocketAddr, options: ListenOptions) -> io::Result<TcpListener> {
    match bind(address, options) {
        // `[::]` stands for every address, and a system without IPv6 does not have it.
        Err(error) if is_without_ipv6(&error) && address.ip() == IpAddr::from(Ipv6Addr::UNSPECIFIED) => {
            bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()), options)
        }
        bound => bound,
    }
}

fn is_without_ipv6(error: &io::Error) -> bool {
    let codes = [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::ADDRNOTAVAIL];
    codes.iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}

fn bind(address: SocketAddr, options: ListenOptions) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // The port can be bound while its last connections are in TIME_WAIT, so a restart does not wait for them.
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(options.reuse_port)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn is_error_of_one_client(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: ListenOptions = ListenOptions { reuse_port: false };
    const SHARED: ListenOptions = ListenOptions { reuse_port: true };

    fn on_free_port(options: ListenOptions) -> (TcpListener, SocketAddr) {
        let listener = listen("127.0.0.1:0".parse().expect("an address"), options).expect("a free port");
        let address = listener.local_addr().expect("an address");
        (listener, address)
    }

    #[tokio::test]
    async fn an_address_is_shared_only_if_both_listeners_ask_for_it() {
        let (_alone, address) = on_free_port(ALONE);
        let (_shared, shared_address) = on_free_port(SHARED);
        for (address, options) in [(address, ALONE), (address, SHARED), (shared_address, ALONE)] {
            let error = listen(address, options).expect_err("the port is taken");
            assert_eq!(error.kind(), ErrorKind::AddrInUse);
        }
        listen(shared_address, SHARED).expect("both ask for it");
    }

    #[tokio::test]
    async fn hundreds_of_connections_wait_to_be_accepted() {
        let (_listener, address) = on_free_port(ALONE);
        let connect = |_| std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1));
        let waiting: Vec<_> = (0..300).map(connect).collect();
        assert_eq!(waiting.iter().position(Result::is_err), None, "of 300");
    }

    #[test]
    fn an_address_is_displayed_as_it_is_written() {
        for text in ["127.0.0.1:6070", "[::1]:0", "localhost:6070", "unix:/run/ratelimitd/admin.sock"] {
            assert_eq!(ListenAddress::parse(text).map(|address| address.to_string()).as_deref(), Some(text));
        }
        for text in
            ["", "localhost", ":6070", "1.2.3:1", "::1:1", "unix:", "unix:admin.sock", "/run/admin.sock"]
        {
            assert_eq!(ListenAddress::parse(text), None, "{text}");
        }
    }
}
