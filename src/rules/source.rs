//! Where rule files are found and how they are read. Knows file systems, not YAML.
//!
//! A path is a file, whatever its name, or a directory: then every `*.yaml` and `*.yml` file in it and below it counts,
//! in the order of their names. Entries whose name starts with a dot are left out, so that the `..data` links of a
//! Kubernetes ConfigMap volume do not load everything twice, and neither do editors' hidden files. Links are followed.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::problem::{Place, Problem};

/// The largest rule file that is read: about 50,000 rules.
const LARGEST_BYTES: u64 = 8 << 20;
/// Directories within each other below a path.
const DEEPEST_DIRECTORY: usize = 32;

/// The paths that rules are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    paths: Vec<PathBuf>,
}

/// What tells one state of the rule files from another without reading them: which files there are, and of each where
/// it leads to, its inode, length and times. Linked directories that are swapped, files renamed over or written in
/// place, and files added or removed all change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    files: Vec<(PathBuf, Result<Stamp, String>)>,
    problems: Vec<Problem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    resolved: PathBuf,
    device: u64,
    inode: u64,
    length: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

/// The content of all files of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    pub each: Vec<SourceFile>,
    /// What went wrong while looking for files.
    pub problems: Vec<Problem>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceFile {
    pub name: Arc<str>,
    pub bytes: Result<Vec<u8>, String>,
}

impl Source {
    /// Rules are read from `paths`, in that order.
    #[must_use]
    pub fn new(paths: &[PathBuf]) -> Self {
        Self { paths: paths.to_vec() }
    }

    /// The state of the files as the file system shows it, without reading them.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let found = self.find();
        let files = found
            .files
            .into_iter()
            .map(|path| {
                let stamp = stamp(&path).map_err(|error| error.to_string());
                (path, stamp)
            })
            .collect();
        Fingerprint { files, problems: found.problems }
    }

    pub(super) fn read(&self) -> Files {
        let found = self.find();
        let each = found
            .files
            .iter()
            .map(|path| SourceFile {
                name: display(path),
                bytes: read_bounded(path).map_err(|error| format!("cannot read the file: {error}")),
            })
            .collect();
        Files { each, problems: found.problems }
    }

    fn find(&self) -> Found {
        let mut found = Found::default();
        if self.paths.is_empty() {
            found.trouble(Path::new("rules"), "no path to rule files is given");
        }
        for path in &self.paths {
            found.add_path(path);
        }
        found
    }
}

#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    /// Where files and directories lead to: each counts once, however many names it has, so circles end.
    resolved: HashSet<PathBuf>,
    problems: Vec<Problem>,
}

impl Found {
    fn add_path(&mut self, path: &Path) {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() && self.is_new(path) => {
                let before = self.files.len();
                self.add_directory(path, 0);
                if self.files.len() == before {
                    self.trouble(path, "no rule files (*.yaml, *.yml) in this directory");
                }
            }
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => self.add_file(path.to_path_buf()),
            Err(error) => self.trouble(path, &format!("cannot read the path: {error}")),
        }
    }

    fn add_directory(&mut self, directory: &Path, depth: usize) {
        if depth > DEEPEST_DIRECTORY {
            self.trouble(directory, &format!("directories nest deeper than {DEEPEST_DIRECTORY} levels"));
            return;
        }
        let entries = match sorted_entries(directory) {
            Ok(entries) => entries,
            Err(error) => {
                self.trouble(directory, &format!("cannot list the directory: {error}"));
                return;
            }
        };
        for path in entries {
            self.add_entry(path, depth);
        }
    }

    fn add_entry(&mut self, path: PathBuf, depth: usize) {
        let metadata = fs::metadata(&path).ok();
        if metadata.as_ref().is_some_and(Metadata::is_dir) {
            if self.is_new(&path) {
                self.add_directory(&path, depth + 1);
            }
        } else if is_rule_file(&path, metadata.as_ref()) {
            self.add_file(path);
        }
    }

    fn add_file(&mut self, path: PathBuf) {
        if self.is_new(&path) {
            self.files.push(path);
        }
    }

    fn is_new(&mut self, path: &Path) -> bool {
        // What leads nowhere is reported when it is read.
        let is_new = fs::canonicalize(path).map_or(true, |resolved| self.resolved.insert(resolved));
        if !is_new {
            let reason = "found under another name before; it is read once";
            self.problems.push(Problem::warning(Place::file(display(path)), reason));
        }
        is_new
    }

    fn trouble(&mut self, path: &Path, reason: &str) {
        self.problems.push(Problem::error(Place::file(display(path)), reason));
    }
}

fn sorted_entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            entries.push(entry.path());
        }
    }
    entries.sort();
    Ok(entries)
}

/// A link that leads nowhere (no metadata) counts by its name alone: it is as bad as a file that cannot be read.
fn is_rule_file(path: &Path, metadata: Option<&Metadata>) -> bool {
    let has_name = path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml");
    has_name && metadata.is_none_or(Metadata::is_file)
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = fs::metadata(path)?;
    Ok(Stamp {
        resolved: fs::canonicalize(path)?,
        device: metadata.dev(),
        inode: metadata.ino(),
        length: metadata.len(),
        modified_ns: (metadata.mtime(), metadata.mtime_nsec()),
        changed_ns: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LARGEST_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LARGEST_BYTES {
        return Err(io::Error::other(format!("it is larger than {LARGEST_BYTES} bytes")));
    }
    Ok(bytes)
}

fn display(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}
