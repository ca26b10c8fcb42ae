//! Generates a token for the values of denied keys at startup: nobody has to configure one and restart the service
//! while callers get 429. Anyone who can read the files of the service's user can use it. It lives in a file in memory
//! that only this user and root can read, until that file goes.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base::hex;
use rustix::fs::OFlags;
use rustix::process::geteuid;

use crate::net::ListenAddress;
use crate::net::token_file::Token;

/// The folder that systemd creates for the service, and memory that every system and container has.
const FOLDERS: [&str; 2] = ["/run/ratelimitd", "/dev/shm"];
const DIGITS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum OwnTokenError {
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: io::Error },
    #[error(
        "no service on admin address {0} has created a token on this machine; run this on its host or in its container, and \
         name its address with --admin"
    )]
    Missing(ListenAddress),
}

/// Returns the token for this admin address. Creates it from `random` if no earlier start left one.
///
/// # Errors
/// If there is no folder for it, or the file there belongs to another user.
pub fn make_own_token(address: &ListenAddress, random: [u8; DIGITS / 2]) -> io::Result<Token> {
    let (name, user) = (file_name(address), geteuid().as_raw());
    let [first, second] = FOLDERS.map(|folder| Path::new(folder).join(&name));
    let made = make(&first, random, user).or_else(|error| {
        // Without systemd the folder does not exist.
        if error.kind() != io::ErrorKind::NotFound {
            tracing::warn!(
                path = %first.display(), %error,
                "cannot create the own token here; trying another directory"
            );
        }
        make(&second, random, user)
    })?;
    Ok(Token::new(made))
}

/// Reads the token for this admin address.
///
/// # Errors
/// [`OwnTokenError`]
pub fn read_own_token(address: &ListenAddress) -> Result<String, OwnTokenError> {
    let name = file_name(address);
    let found = read_first(FOLDERS.map(|folder| Path::new(folder).join(&name)))?;
    found.ok_or_else(|| OwnTokenError::Missing(address.clone()))
}

/// Returns the first token in these files. Without one, the first problem other than a missing file.
fn read_first(paths: [PathBuf; 2]) -> Result<Option<String>, OwnTokenError> {
    let mut problem = None;
    for path in paths {
        match read_token(&path) {
            Ok(token) => return Ok(Some(token)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => problem = problem.or(Some(OwnTokenError::File { path, cause })),
        }
    }
    problem.map_or(Ok(None), Err)
}

/// Reads the token in a file that a service may have created. Never shows other content.
fn read_token(path: &Path) -> io::Result<String> {
    let file = options().read(true).open(path)?;
    if !is_private(&file.metadata()?) {
        return Err(io::Error::other("other users can read it, or it is not a file"));
    }
    token_in(&file)?.ok_or_else(|| io::Error::other("contains no token"))
}

/// One file per port or socket.
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

/// `user`: the process's user.
fn make(path: &Path, random: [u8; DIGITS / 2], user: u32) -> io::Result<String> {
    let mut file = open_or_create(path)?;
    let metadata = file.metadata()?;
    // Any user can create files in shared memory.
    if !is_private(&metadata) || metadata.uid() != user {
        let reason = format!("{} belongs to another user, or other users can read it", path.display());
        return Err(io::Error::other(reason));
    }
    if let Some(token) = token_in(&file)? {
        return Ok(token);
    }
    let token = hex(&random);
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(token.as_bytes())?;
    Ok(token)
}

fn open_or_create(path: &Path) -> io::Result<File> {
    let mut options = options();
    options.read(true).write(true).mode(0o600);
    match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        opened => opened,
    }
}

/// Follows no link, and does not wait for a pipe.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    options
}

/// `true` for a regular file with one name, readable only for its user.
fn is_private(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.nlink() == 1 && metadata.mode() & 0o077 == 0
}

fn token_in(file: &File) -> io::Result<Option<String>> {
    let mut bytes = Vec::new();
    file.take(DIGITS as u64 + 1).read_to_end(&mut bytes)?;
    let is_token = bytes.len() == DIGITS && bytes.iter().all(u8::is_ascii_hexdigit);
    Ok(String::from_utf8(bytes).ok().filter(|_| is_token))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn make_own(path: &Path, random: [u8; DIGITS / 2]) -> io::Result<String> {
        make(path, random, geteuid().as_raw())
    }

    /// Files that a service never creates.
    const OTHERS: [&str; 4] = ["link", "shared", "open", "pipe"];

    fn make_others(folder: &Path) {
        make_own(&folder.join("target"), [1; 32]).expect("a token");
        std::os::unix::fs::symlink("target", folder.join("link")).expect("a link");
        make_own(&folder.join("shared"), [1; 32]).expect("a token");
        fs::hard_link(folder.join("shared"), folder.join("second name")).expect("a link");
        make_own(&folder.join("open"), [1; 32]).expect("a token");
        fs::set_permissions(folder.join("open"), fs::Permissions::from_mode(0o640)).expect("an own file");
        let made = std::process::Command::new("mkfifo").args(["-m", "600"]).arg(folder.join("pipe")).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo is a part of coreutils");
    }

    #[test]
    fn a_token_is_kept_for_the_next_start() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("own");
        let first = make_own(&path, [1; 32]).expect("a token");
        assert_eq!(first, "01".repeat(32));
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
        assert_eq!(make_own(&path, [2; 32]).expect("the same token"), first);
        fs::write(&path, "cut").expect("a file");
        assert_eq!(make_own(&path, [3; 32]).expect("a new token"), "03".repeat(32));
    }

    #[test]
    fn what_others_may_have_written_or_read_is_no_token() {
        let folder = tempfile::tempdir().expect("a folder");
        make_others(folder.path());
        for name in OTHERS.into_iter().chain(["no/folder"]) {
            assert!(make_own(&folder.path().join(name), [2; 32]).is_err(), "{name}");
        }
        // The files of this test belong to another user than this process.
        let (path, other) = (folder.path().join("target"), geteuid().as_raw() + 1);
        assert!(make(&path, [2; 32], other).is_err(), "it belongs to another user");
        assert_eq!(read_token(&path).expect("the token"), "01".repeat(32), "and is as it was");
    }

    #[test]
    fn the_command_shows_the_first_file_that_a_service_may_have_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        make_others(folder.path());
        fs::write(path("text"), "x".repeat(DIGITS)).expect("a file");
        fs::set_permissions(path("text"), fs::Permissions::from_mode(0o600)).expect("an own file");
        make_own(&path("own"), [7; 32]).expect("a token");
        for name in OTHERS.into_iter().chain(["text", "missing"]) {
            let found = read_first([path(name), path("own")]).expect("the second file");
            assert_eq!(found, Some("07".repeat(32)), "{name}");
            let alone = read_first([path("missing"), path(name)]);
            match name {
                "missing" => assert!(matches!(alone, Ok(None)), "{alone:?}"),
                _ => assert!(alone.expect_err(name).to_string().contains(name), "the path is named"),
            }
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
