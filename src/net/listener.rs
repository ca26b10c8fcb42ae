//! The listener of a port: on a TCP address or a host name, or on a Unix socket.

use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_util::either::Either;

use super::Admission;
use super::accept::{BACKLOG, ListenOptions, listen, next_connection, next_unix_connection};

/// Read and write for the user of the process, nothing for others.
const SOCKET_MODE: u32 = 0o600;
/// For the addresses of a host name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
const SOCKET_SCHEME: &str = "unix:";

/// Who may open a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketAccess {
    /// The user of the process.
    OwnUser,
    /// Whoever the umask of the process lets write to its files.
    Umask,
}

/// Where a port listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    /// A host name, resolved when the port is bound, and a port.
    Name(String, u16),
    /// The absolute path of a Unix socket.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Parses an IP address or a host name with a port, or `unix:` and an absolute path.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(SOCKET_SCHEME) {
            Some(path) => Path::new(path).is_absolute().then(|| Self::Unix(PathBuf::from(path))),
            None => text.parse().ok().map(Self::Tcp).or_else(|| parse_name(text)),
        }
    }

    /// The TCP addresses to try in turn; none for a Unix socket.
    ///
    /// # Errors
    /// When the name cannot be resolved.
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

/// A host name and a port. Digits and dots alone would be an IP address with a mistake.
fn parse_name(text: &str) -> Option<ListenAddress> {
    let (host, port) = text.rsplit_once(':')?;
    let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
        && host.bytes().any(|byte| byte.is_ascii_alphabetic());
    let port = port.parse().ok().filter(|_| is_name)?;
    Some(ListenAddress::Name(host.to_owned(), port))
}

/// Listens on the first of the addresses that can be bound.
///
/// # Errors
/// When the name cannot be resolved, or why the last address cannot be bound.
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

/// A connection of a port.
pub(crate) type PortStream = Either<TcpStream, UnixStream>;

/// A bound port. Dropping it removes the file of its Unix socket.
#[derive(Debug)]
pub struct PortListener(Socket);

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl PortListener {
    /// Listens on the address. The options are for TCP: a Unix socket has one listener. `access` is for Unix sockets.
    ///
    /// # Errors
    /// When the address is in use, or the system refuses it.
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

    /// The bound address: port 0 in the settings is the chosen port here.
    ///
    /// # Errors
    /// When the system does not report an address.
    pub fn address(&self) -> io::Result<ListenAddress> {
        match &self.0 {
            Socket::Tcp(listener) => listener.local_addr().map(ListenAddress::Tcp),
            Socket::Unix(_, file) => Ok(ListenAddress::Unix(file.path.clone())),
        }
    }

    /// A listener of a TCP port that is bound already.
    #[cfg(test)]
    pub(crate) fn of_tcp(listener: TcpListener) -> Self {
        Self(Socket::Tcp(listener))
    }

    /// The next connection, and the address of its client. Does not fail: errors of the system are logged and tried
    /// again.
    pub(crate) async fn next_connection(&self, admission: &Admission) -> (PortStream, IpAddr) {
        match &self.0 {
            Socket::Tcp(listener) => {
                let (stream, client) = next_connection(listener, admission).await;
                (Either::Left(stream), client)
            }
            Socket::Unix(listener, _) => {
                let (stream, client) = next_unix_connection(listener, admission).await;
                (Either::Right(stream), client)
            }
        }
    }
}

/// The mode is set before the socket listens, so no connection is made under the mode of the umask.
async fn bind_unix(path: &Path, access: SocketAccess) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale_socket(path).await?;
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile::at(path)?;
    if access == SocketAccess::OwnUser {
        fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
    }
    Ok((socket.listen(BACKLOG)?, file))
}

/// Removes the file of a socket on which no process listens: it was left by a process that was killed.
async fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "a file that is not a socket is there"));
    }
    // Does not wait: a Unix socket accepts or refuses at once.
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "address in use: another process listens on it")),
    }
}

/// The file of a bound socket, removed when dropped.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        let file = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device: file.dev(), inode: file.ino() })
    }

    /// Whether the path still leads to this socket, not to one of a later process.
    fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path)
            .is_ok_and(|file| (file.dev(), file.ino()) == (self.device, self.inode))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.is_there() {
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the Unix socket cannot be removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as StdListener;

    use super::*;

    fn socket_in(folder: &tempfile::TempDir) -> (PathBuf, ListenAddress) {
        let path = folder.path().join("admin.sock");
        (path.clone(), ListenAddress::Unix(path))
    }

    async fn bind(address: &ListenAddress) -> io::Result<PortListener> {
        PortListener::bind(address, ListenOptions::default(), SocketAccess::OwnUser).await
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

    #[tokio::test]
    async fn the_socket_of_a_killed_process_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, address) = socket_in(&folder);
        // The standard library leaves the file, as a killed process does.
        drop(StdListener::bind(&path).expect("a socket"));
        let listener = bind(&address).await.expect("a stale socket is replaced");
        assert_eq!(listener.address().expect("an address"), address);
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, SOCKET_MODE);
        drop(listener);
        assert!(!path.exists(), "the socket is removed at the end");
    }

    #[tokio::test]
    async fn a_socket_in_use_and_other_files_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, address) = socket_in(&folder);
        let other = StdListener::bind(&path).expect("a socket");
        let error = bind(&address).await.expect_err("the socket is in use");
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        drop(other);
        fs::remove_file(&path).expect("a socket");
        fs::write(&path, "precious").expect("a file");
        let error = bind(&address).await.expect_err("a file is there");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).expect("a file"), "precious");
    }

    #[tokio::test]
    async fn the_socket_of_a_later_process_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, address) = socket_in(&folder);
        let first = bind(&address).await.expect("a socket");
        let moved = folder.path().join("moved.sock");
        fs::rename(&path, &moved).expect("a socket");
        let second = bind(&address).await.expect("another socket");
        drop(first);
        assert!(path.exists() && moved.exists());
        drop(second);
        assert!(!path.exists());
    }
}
