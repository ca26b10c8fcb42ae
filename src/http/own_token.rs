//! The token that a service makes for itself when it starts. The values of denied keys need a token; with this one
//! nobody has to set one and restart the service while callers get 429. Whoever may read the files of its user has it.
//!
//! It is in a file in memory that only the user of the process and root can read, and stays the same after a restart of
//! the process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base::read_file;
use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::token_file::Token;
use crate::net::ListenAddress;

/// The folder that systemd makes for the service, and memory that every system and every container has.
const FOLDERS: [&str; 2] = ["/run/ratelimitd", "/dev/shm"];
/// Hexadecimal digits of a token.
const DIGITS: usize = 64;

/// Why a command finds no token.
#[derive(Debug, thiserror::Error)]
pub enum OwnTokenError {
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error(
        "no service with the admin address {0} has made a token here: run this on its host or in its container, and name \
         its address with --admin"
    )]
    Missing(ListenAddress),
}

/// The token of the service with this admin address. It is made of `random` if there is none of an earlier start.
///
/// # Errors
/// When there is no folder for it, or what stands there belongs to somebody else.
pub fn make_own_token(address: &ListenAddress, random: [u8; DIGITS / 2]) -> io::Result<Token> {
    let name = file_name(address);
    let [first, second] = FOLDERS.map(|folder| Path::new(folder).join(&name));
    let made = make(&first, random).or_else(|_| make(&second, random))?;
    Ok(Token::new(made))
}

/// The token of the service with this admin address, for whoever may read its file.
///
/// # Errors
/// [`OwnTokenError`]
pub fn read_own_token(address: &ListenAddress) -> Result<String, OwnTokenError> {
    let name = file_name(address);
    for path in FOLDERS.map(|folder| Path::new(folder).join(&name)) {
        match read_file(&path, DIGITS as u64 + 1).map(token_in) {
            Ok(Some(token)) => return Ok(token),
            // Something else, which must not be shown.
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(OwnTokenError::File { path, cause }),
        }
    }
    Err(OwnTokenError::Missing(address.clone()))
}

/// A file for each port, or for each socket.
fn file_name(address: &ListenAddress) -> String {
    let place = match address {
        ListenAddress::Tcp(address) => address.port().to_string(),
        ListenAddress::Name(_, port) => port.to_string(),
        ListenAddress::Unix(path) => {
            path.to_string_lossy().replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
        }
    };
    format!("ratelimitd-{place}.token")
}

fn make(path: &Path, random: [u8; DIGITS / 2]) -> io::Result<String> {
    let mut file = open_or_create(path)?;
    let metadata = file.metadata()?;
    let is_own = metadata.is_file() && metadata.uid() == geteuid().as_raw() && metadata.nlink() == 1;
    // Everybody may make files in a folder of shared memory.
    if !is_own || metadata.mode() & 0o077 != 0 {
        let reason = format!("{} belongs to another user, or others can read it", path.display());
        return Err(io::Error::other(reason));
    }
    let mut bytes = Vec::new();
    (&file).take(DIGITS as u64 + 1).read_to_end(&mut bytes)?;
    if let Some(token) = token_in(bytes) {
        return Ok(token);
    }
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(token.as_bytes())?;
    Ok(token)
}

fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    options.read(true).write(true).mode(0o600).custom_flags(flags);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        opened => opened,
    }
}

fn token_in(bytes: Vec<u8>) -> Option<String> {
    let is_token = bytes.len() == DIGITS && bytes.iter().all(u8::is_ascii_hexdigit);
    String::from_utf8(bytes).ok().filter(|_| is_token)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_kept_for_the_next_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("own");
        let first = make(&path, [1; 32]).expect("a token");
        assert_eq!(first, "01".repeat(32));
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(make(&path, [2; 32]).expect("the same token"), first);
        fs::write(&path, "cut").expect("a file");
        assert_eq!(make(&path, [3; 32]).expect("a new token"), "03".repeat(32));
    }

    #[test]
    fn what_others_may_have_written_or_read_is_no_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        make(&path("target"), [1; 32]).expect("a token");
        std::os::unix::fs::symlink("target", path("link")).expect("a link");
        make(&path("shared"), [1; 32]).expect("a token");
        fs::hard_link(path("shared"), path("second name")).expect("a link");
        make(&path("open"), [1; 32]).expect("a token");
        fs::set_permissions(path("open"), fs::Permissions::from_mode(0o640)).expect("an own file");
        let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(path("pipe")).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo is a part of coreutils");
        for name in ["link", "shared", "open", "pipe", "no/folder"] {
            assert!(make(&path(name), [2; 32]).is_err(), "{name}");
        }
    }

    #[test]
    fn each_port_and_socket_has_a_file_of_its_own() {
        let table = [
            ("127.0.0.1:6070", "ratelimitd-6070.token"),
            ("[::]:6071", "ratelimitd-6071.token"),
            ("localhost:6070", "ratelimitd-6070.token"),
            ("unix:/run/ratelimitd/admin.sock", "ratelimitd--run-ratelimitd-admin-sock.token"),
        ];
        for (address, name) in table {
            assert_eq!(file_name(&ListenAddress::parse(address).expect("an address")), name);
        }
    }
}
