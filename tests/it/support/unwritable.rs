//! Files that cannot be written, for the output of a process under test.

use std::fs::File;
use std::io::PipeReader;
use std::os::fd::OwnedFd;

/// A device without space: each write fails with ENOSPC.
pub fn full_device() -> File {
    File::options().write(true).open("/dev/full").expect("/dev/full, which Linux has")
}

/// A pipe whose reader is gone: each write fails with EPIPE.
pub fn pipe_without_reader() -> File {
    pipe().1
}

/// A pipe. Writes wait as soon as some 64 KiB were not read.
pub fn pipe() -> (PipeReader, File) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    (reader, OwnedFd::from(writer).into())
}
