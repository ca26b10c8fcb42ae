//! The file of a Unix socket: its mode, and how it is replaced and removed.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

/// Connections that wait to be accepted. The system has its own limit (`net.core.somaxconn`).
pub(super) const BACKLOG: u32 = 1_024;

/// Who can open a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketAccess {
    /// The user of the process.
    OwnUser,
    /// Every user who may write to the process's files under its umask.
    Umask,
}

/// Read and write for the process's user, nothing for others.
const SOCKET_MODE: u32 = 0o600;

/// Listens on a Unix socket. The mode is set before the socket listens, so no connection is made under the umask's
/// mode.
pub(super) async fn bind_unix(path: &Path, access: SocketAccess) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale_socket(path).await?;
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile::at(path)?;
    if access == SocketAccess::OwnUser {
        fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
    }
    Ok((socket.listen(BACKLOG)?, file))
}

/// Removes a socket file on which no process listens, left by a process that was killed.
async fn remove_stale_socket(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "a file that is not a socket is there"));
    }
    // Does not wait: a Unix socket accepts or refuses immediately.
    match UnixStream::connect(path).await {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "address in use: another process listens on it")),
    }
}

/// The file of a bound socket, removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFile {
    pub(super) path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        let file = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device: file.dev(), inode: file.ino() })
    }

    /// `true` if the path still leads to this socket, not to a later process's.
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
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the Unix socket");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener as StdListener;

    use super::*;
    use crate::net::{ListenAddress, ListenOptions, PortListener};

    fn socket_in(folder: &tempfile::TempDir) -> (PathBuf, ListenAddress) {
        let path = folder.path().join("admin.sock");
        (path.clone(), ListenAddress::Unix(path))
    }

    async fn bind(address: &ListenAddress) -> io::Result<PortListener> {
        PortListener::bind(address, ListenOptions::default(), SocketAccess::OwnUser).await
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
