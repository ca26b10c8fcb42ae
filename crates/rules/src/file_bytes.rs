//! The bytes of rule files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::problem::Problem;

/// The size limit of a rule file. `yaml` bounds the number of keys and values in it.
const MAX_FILE_BYTES: u64 = 8 << 20;
/// The bytes of all files of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SourceFiles {
    pub files: Vec<SourceFile>,
    /// Problems with paths and directories. A file that cannot be read is in `files`.
    pub problems: Vec<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    pub name: Arc<str>,
    pub bytes: Result<Vec<u8>, String>,
    /// Whether the file must hold rules: its path was given, or its name ends in `.yaml` or `.yml`.
    pub is_rules: bool,
}

impl SourceFiles {
    /// One file from a stream.
    pub fn from_stream(name: &str, stream: impl Read) -> Self {
        let file = SourceFile::new(name.into(), true, read_stream(stream, Vec::new()));
        Self { files: vec![file], problems: Vec::new() }
    }
}

impl SourceFile {
    pub fn new(name: Arc<str>, is_rules: bool, bytes: io::Result<Vec<u8>>) -> Self {
        Self { name, is_rules, bytes: bytes.map_err(|error| format!("cannot read the file: {error}")) }
    }
}

/// The bytes of a regular file of a bounded size.
pub(super) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let length = metadata.len();
    let capacity = usize::try_from(length).ok().filter(|_| length <= MAX_FILE_BYTES).ok_or_else(too_large)?;
    // The file may have grown since.
    read_stream(File::open(path)?, Vec::with_capacity(capacity))
}

fn read_stream(stream: impl Read, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    stream.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(too_large());
    }
    Ok(bytes)
}

fn too_large() -> io::Error {
    io::Error::other(format!("it is larger than {MAX_FILE_BYTES} bytes"))
}
