//! The bytes of rule files.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{read_file, read_stream};

use super::problem::Problem;

/// Maximum size of a rule file. `yaml` bounds its number of keys and values.
pub(super) const MAX_RULE_BYTES: u64 = 8 << 20;

#[derive(Debug, Default)]
pub(super) struct SourceFiles {
    pub files: Vec<SourceFile>,
    /// Problems with paths and directories. An unreadable file is in `files`.
    pub problems: Vec<Problem>,
}

#[derive(Debug)]
pub(super) struct SourceFile {
    pub name: Arc<str>,
    /// If the user names a directory, the path below it. If the user names a file, empty.
    pub below: PathBuf,
    pub bytes: Result<Vec<u8>, String>,
    /// `true` if the file must hold rules: its path was given, or its name ends in `.yaml` or `.yml`.
    pub is_rules: bool,
}

impl SourceFiles {
    pub fn from_stream(name: &str, stream: impl Read) -> Self {
        let file = SourceFile::new(name.into(), PathBuf::new(), true, read_stream(stream, MAX_RULE_BYTES));
        Self { files: vec![file], problems: Vec::new() }
    }

    /// The digest of the files, in order: path below `rules.path`, and bytes. An unreadable file counts as empty.
    pub fn digest(&self) -> String {
        base::digest(self.files.iter().flat_map(|file| {
            [file.below.as_os_str().as_encoded_bytes(), file.bytes.as_deref().unwrap_or_default()]
        }))
    }
}

impl SourceFile {
    pub fn read_from(name: Arc<str>, below: PathBuf, is_rules: bool, path: &Path) -> Self {
        Self::new(name, below, is_rules, read_file(path, MAX_RULE_BYTES))
    }

    fn new(name: Arc<str>, below: PathBuf, is_rules: bool, bytes: io::Result<Vec<u8>>) -> Self {
        Self { name, below, is_rules, bytes: bytes.map_err(|error| format!("cannot read the file: {error}")) }
    }
}
