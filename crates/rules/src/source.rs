//! Finds rule files and exception files. A path is a file with any name, or a directory tree of `*.yaml` and `*.yml`
//! files (for exceptions also `*.csv`), read in the order of names.
//!
//! Follows symbolic links. Skips names that start with a dot: the `..data` link of a Kubernetes ConfigMap would load
//! every file twice, and editors keep hidden copies. Warns about other files: they may be misspelled rule files.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{FindFiles, escaped};
use strum::{EnumString, VariantNames};

use super::file_bytes::{MAX_RULE_BYTES, SourceFile, SourceFiles};
use super::problem::{Location, Problem};

/// Maximum size of an exception file: more than three million CSV rows.
pub(super) const MAX_EXCEPTION_BYTES: u64 = 128 << 20;

/// Levels of directories below a path.
const MAX_DIRECTORY_DEPTH: usize = 32;

/// Warnings about single unread files. One more warning counts the rest.
const MAX_UNREAD_LISTED: usize = 100;

/// Paths of rule files or directories of them; or the path of an exception file or a directory of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    paths: Vec<PathBuf>,
    directory: RuleDirectory,
    purpose: Purpose,
    /// `true`: no path counts as no files.
    may_be_missing: bool,
}

/// What the files of a source contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Purpose {
    #[default]
    Rules,
    /// A directory without files is valid: there are no exceptions.
    Exceptions,
}

/// Which files of a directory are read, and what a service does without usable rules: the setting `rules.directory`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum RuleDirectory {
    /// `*.yaml` and `*.yml`, at least one. The process exits if the first rules are invalid.
    #[default]
    YamlFiles,
    /// Every file that looks like rules. If the first rules are invalid, the process starts without rules and not
    /// ready; an empty directory is valid.
    AnyFiles,
    /// Like [`AnyFiles`](Self::AnyFiles), and files `NAME.*` next to the directory `NAME`.
    AnyFilesAndBeside,
    /// Like [`AnyFilesAndBeside`](Self::AnyFilesAndBeside), and a missing directory counts as empty.
    Optional,
}

impl RuleDirectory {
    /// With any names, a service also starts without rules, not ready, if its first rules are invalid.
    pub fn reads_any_name(self) -> bool {
        self != Self::YamlFiles
    }

    fn reads_beside(self) -> bool {
        matches!(self, Self::AnyFilesAndBeside | Self::Optional)
    }
}

impl Source {
    /// Files are read in the order of `paths`.
    pub fn new(paths: &[PathBuf], directory: RuleDirectory) -> Self {
        Self { paths: paths.to_vec(), directory, purpose: Purpose::Rules, may_be_missing: false }
    }

    pub(super) fn of_exceptions(path: &Path, may_be_missing: bool) -> Self {
        let directory = RuleDirectory::YamlFiles;
        Self { paths: vec![path.to_path_buf()], directory, purpose: Purpose::Exceptions, may_be_missing }
    }

    pub(super) fn read_files(&self) -> SourceFiles {
        let found = self.search();
        let read = |path: &PathBuf| {
            let is_rules = self.paths.contains(path) || has_rule_name(path);
            // A file beside the directory counts by its name.
            let below = self.paths.iter().find_map(|root| path.strip_prefix(root).ok());
            let below = below.or(path.file_name().map(Path::new)).unwrap_or(path);
            SourceFile::read_from(display(path), below.to_owned(), is_rules, path)
        };
        SourceFiles { files: found.files.iter().map(read).collect(), problems: found.problems }
    }

    fn search(&self) -> FileSearch {
        let mut found =
            FileSearch { directory: self.directory, purpose: self.purpose, ..FileSearch::default() };
        let is_missing =
            |path: &PathBuf| fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if self.may_be_missing && self.paths.iter().all(is_missing) {
            return found;
        }
        if self.paths.is_empty() {
            found.error(Path::new("rules"), "no path to rule files is given");
        }
        for path in &self.paths {
            found.add_path(path);
        }
        found.report_unread();
        found
    }
}

impl FindFiles for Source {
    /// Problems found while looking for files.
    type Notes = Vec<Problem>;

    fn find_files(&self) -> (Vec<PathBuf>, Vec<Problem>) {
        let FileSearch { files, problems, .. } = self.search();
        (files, problems)
    }

    fn max_file_bytes(&self) -> u64 {
        match self.purpose {
            Purpose::Rules => MAX_RULE_BYTES,
            Purpose::Exceptions => MAX_EXCEPTION_BYTES,
        }
    }
}

#[derive(Default)]
struct FileSearch {
    directory: RuleDirectory,
    purpose: Purpose,
    files: Vec<PathBuf>,
    /// The resolved paths found so far. A file with several names is read once, and a loop of links ends.
    resolved: HashSet<PathBuf>,
    /// Visible files in directories that are not rule files, each with the reason.
    unread: Vec<(PathBuf, &'static str)>,
    problems: Vec<Problem>,
}

impl FileSearch {
    fn add_path(&mut self, path: &Path) {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() && self.is_new(path) => {
                let before = self.files.len();
                self.add_directory(path, 0);
                if self.directory.reads_beside() {
                    self.add_files_beside(path);
                }
                let must_have_files = self.purpose == Purpose::Rules && !self.directory.reads_any_name();
                if self.files.len() == before && must_have_files {
                    self.error(path, "no rule files (*.yaml, *.yml) in this directory");
                }
            }
            Ok(metadata) if metadata.is_dir() => {}
            // Opening a pipe would wait for its writer, and a device may never end.
            Ok(metadata) if !metadata.is_file() => self.error(path, "neither a regular file nor a directory"),
            Ok(_) => self.add_file(path.to_path_buf()),
            Err(error)
                if self.directory == RuleDirectory::Optional && error.kind() == io::ErrorKind::NotFound =>
            {
                let location = Location::file(display(path));
                self.problems.push(Problem::warning(location, "this directory does not exist"));
                self.add_files_beside(path);
            }
            Err(error) => self.error(path, &format!("cannot read the path: {error}")),
        }
    }

    fn add_directory(&mut self, directory: &Path, depth: usize) {
        // Some programs create a directory if a file is missing.
        let is_csv = self.purpose == Purpose::Exceptions && is_csv(directory);
        if !self.directory.reads_any_name() && (has_rule_name(directory) || is_csv) {
            self.error(directory, "a directory with the name of a file");
            return;
        }
        if depth > MAX_DIRECTORY_DEPTH {
            self.error(directory, &format!("directories nest deeper than {MAX_DIRECTORY_DEPTH} levels"));
            return;
        }
        let entries = match sorted_entries(directory, self.directory) {
            Ok(entries) => entries,
            Err(error) => {
                self.error(directory, &format!("cannot list the directory: {error}"));
                return;
            }
        };
        for path in entries {
            self.add_entry(path, depth);
        }
    }

    fn add_entry(&mut self, path: PathBuf, depth: usize) {
        let metadata = fs::metadata(&path).ok();
        if metadata.as_ref().is_some_and(Metadata::is_dir) && !starts_with_dot(&path) {
            if self.is_new(&path) {
                self.add_directory(&path, depth + 1);
            }
        } else if let Some(reason) = self.unread_reason(&path, metadata.as_ref()) {
            self.unread.push((path, reason));
        } else {
            self.add_file(path);
        }
    }

    /// Adds the files `config.x.yaml` next to the directory `config`.
    fn add_files_beside(&mut self, directory: &Path) {
        let (Some(parent), Some(name)) = (directory.parent(), directory.file_name()) else { return };
        let prefix = [name.as_encoded_bytes(), b"."].concat();
        // A parent that cannot be listed contributes no files; the directory itself was listed.
        for path in sorted_entries(parent, self.directory).unwrap_or_default() {
            let is_beside = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(&prefix));
            if is_beside && fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
                self.add_entry(path, 0);
            }
        }
    }

    fn report_unread(&mut self) {
        let further = self.unread.split_off(self.unread.len().min(MAX_UNREAD_LISTED));
        for (path, reason) in std::mem::take(&mut self.unread) {
            self.problems.push(Problem::warning(Location::file(display(&path)), reason));
        }
        if let Some((path, _)) = further.first() {
            let reason = format!("this file and {} others are not read either", further.len() - 1);
            self.problems.push(Problem::warning(Location::file(display(path)), reason));
        }
    }

    /// Why a directory entry is not read; `None` for a file to read. A dangling link (without metadata) counts by its
    /// name, so that it is reported like an unreadable file.
    fn unread_reason(&self, path: &Path, metadata: Option<&Metadata>) -> Option<&'static str> {
        let any_name = self.directory.reads_any_name();
        match self.purpose {
            _ if any_name && is_left_by_an_editor(path) => {
                return Some("not read, because editors give such names to their own copies");
            }
            _ if starts_with_dot(path) => return Some("not read, because its name begins with a dot"),
            Purpose::Rules if !any_name && !has_rule_name(path) => {
                return Some("not read, because its name does not end in .yaml or .yml");
            }
            Purpose::Exceptions if !is_csv(path) && !has_rule_name(path) => {
                return Some("not read, because its name does not end in .csv, .yaml or .yml");
            }
            Purpose::Rules | Purpose::Exceptions => {}
        }
        // Anything else under a file's name is read, which is an error: otherwise its rules or exceptions would be
        // dropped.
        let is_read = metadata.is_none_or(Metadata::is_file) || !any_name;
        (!is_read).then_some("not read, because not a regular file")
    }

    fn add_file(&mut self, path: PathBuf) {
        if self.is_new(&path) {
            self.files.push(path);
        }
    }

    fn is_new(&mut self, path: &Path) -> bool {
        // A dangling link has no resolved path. Reading it reports the error.
        let is_new = fs::canonicalize(path).map_or(true, |resolved| self.resolved.insert(resolved));
        if !is_new {
            let reason = "already found under another name; it is read once";
            self.problems.push(Problem::warning(Location::file(display(path)), reason));
        }
        is_new
    }

    fn error(&mut self, path: &Path, reason: &str) {
        self.problems.push(Problem::error(Location::file(display(path)), reason));
    }
}

/// The entries of a directory. If any name is read, a name that begins with one dot may be a rule file, so it is
/// reported; Kubernetes uses two dots for the internals of a ConfigMap volume.
fn sorted_entries(directory: &Path, read: RuleDirectory) -> io::Result<Vec<PathBuf>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden: &[u8] = if read.reads_any_name() { b".." } else { b"." };
        if !name.as_encoded_bytes().starts_with(hidden) {
            entries.push(entry.path());
        }
    }
    entries.sort();
    Ok(entries)
}

fn starts_with_dot(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn has_rule_name(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// `true` for CSV; other files are YAML.
pub(super) fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "csv")
}

/// An editor's copy next to the file would make its domain a duplicate while the editor is open.
fn is_left_by_an_editor(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let ends = |end: &[u8]| name.ends_with(end);
    // vim creates the last one to test if it may create files.
    ends(b"~")
        || name.starts_with(b"#") && ends(b"#")
        || name.starts_with(b".#")
        || name == b"4913"
        || [b".swp", b".swo", b".swx"].iter().any(|end| ends(*end))
}

/// The name of a file in messages.
pub(super) fn display(path: &Path) -> Arc<str> {
    escaped(path.to_string_lossy().into_owned()).into()
}
