//! The only way to read a file that a setting or a command names, except for logs, which may be pipes.
//!
//! The path may hold something else: a pipe, which blocks until a writer opens it; an endless device; a file that fills
//! the memory. So only regular files of bounded size are read, and opening never blocks.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file of at most `max_bytes`. It may grow later: also limit what you read.
///
/// # Errors
/// If the file cannot be opened, is larger, or is a directory, pipe, socket or device.
pub fn open_file(path: &Path, max_bytes: u64) -> io::Result<File> {
    // Opening a device can have side effects, so known non-files are not opened.
    check(&fs::metadata(path)?, max_bytes)?;
    // If a pipe has replaced the file since, opening it does not wait for a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    check(&file.metadata()?, max_bytes)?;
    Ok(file)
}

/// Reads a regular file of at most `max_bytes`.
///
/// # Errors
/// If the file cannot be read, is larger, or is a directory, pipe, socket or device.
pub fn read_file(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_stream(open_file(path, max_bytes)?, max_bytes)
}

/// Reads a stream of at most `max_bytes`.
///
/// # Errors
/// If the stream cannot be read, or is longer.
pub fn read_stream(stream: impl Read, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes { Err(too_large(max_bytes)) } else { Ok(bytes) }
}

fn check(metadata: &Metadata, max_bytes: u64) -> io::Result<()> {
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > max_bytes { Err(too_large(max_bytes)) } else { Ok(()) }
}

fn too_large(max_bytes: u64) -> io::Error {
    io::Error::other(format!("larger than {max_bytes} bytes"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    const MAX: u64 = 1 << 10;

    fn read(path: &Path) -> Result<usize, String> {
        read_file(path, MAX).map(|bytes| bytes.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn only_a_regular_file_of_a_bounded_size_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let made = Command::new("mkfifo").arg(path("pipe")).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo is a part of coreutils");
        let _socket = UnixListener::bind(path("socket")).expect("a socket");
        for (name, length) in [("empty", 0), ("whole", MAX), ("large", MAX + 1), ("sparse", 200 << 20)] {
            File::create(path(name)).and_then(|file| file.set_len(length)).expect("a file");
        }
        std::os::unix::fs::symlink("whole", path("link")).expect("a link");
        let other = Err("not a regular file".to_owned());
        let large = Err("larger than 1024 bytes".to_owned());
        let table = [
            ("pipe", other.clone()),
            ("socket", other.clone()),
            ("/dev/zero", other.clone()),
            (".", other),
            ("large", large.clone()),
            ("sparse", large),
            ("missing", Err("No such file or directory (os error 2)".to_owned())),
            ("empty", Ok(0)),
            ("whole", Ok(1024)),
            ("link", Ok(1024)),
        ];
        for (name, expected) in table {
            assert_eq!(read(&path(name)), expected, "{name}");
        }
    }

    #[test]
    fn a_stream_ends_at_its_bound() {
        assert_eq!(read_stream(&b"abc"[..], 3).expect("three bytes"), b"abc");
        assert!(read_stream(io::repeat(0), MAX).is_err());
    }
}
