//! Loads files of exceptions again after a change: when two readings agree and differ from the one in force.

use std::collections::hash_map::DefaultHasher;
use std::fs::File;
use std::hash::Hasher as _;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::{ExceptionScope, LoadedExceptions, MAX_FILE_BYTES, load_source};
use crate::file_watch::{FileWatch, Seen};
use crate::problem::{Problem, Problems};
use crate::source::Source;

/// The result of one check of the files.
#[derive(Debug)]
pub enum ExceptionChange {
    /// The files are those loaded last.
    Unchanged,
    /// The files changed since the last check, see [`Change::Unsettled`](crate::Change::Unsettled).
    Unsettled { is_overdue: bool },
    /// The files changed and were loaded. A state of the files is loaded once, also if it has errors.
    Loaded(Result<Arc<LoadedExceptions>, Problems>),
}

/// Loads files of exceptions, and loads them again after a change.
#[derive(Debug)]
pub struct ExceptionReloader {
    watch: FileWatch,
    /// The content of the files loaded last.
    loaded_content: ContentPrint,
    /// The rows that are in force.
    in_force: Arc<LoadedExceptions>,
}

/// The files and a hash of the bytes of each, by which a change is recognised. The text of an error stands for a file
/// that cannot be read.
#[derive(Debug, PartialEq, Eq)]
struct ContentPrint {
    files: Vec<(PathBuf, Result<u64, String>)>,
    problems: Vec<Problem>,
}

impl ContentPrint {
    fn of_source(source: &Source) -> Self {
        let (paths, problems) = source.list_files();
        let print = |path: PathBuf| {
            let content = hash_file(&path).map_err(|error| error.to_string());
            (path, content)
        };
        Self { files: paths.into_iter().map(print).collect(), problems }
    }
}

impl ExceptionReloader {
    /// Loads the files at `path` for the first time, at `now_us` (microseconds since the epoch).
    ///
    /// # Errors
    /// All problems of all files, warnings included, if at least one is an error.
    pub fn start(path: &Path, now_us: u64) -> Result<(Self, Arc<LoadedExceptions>), Problems> {
        let watch = FileWatch::start(Source::of_exceptions(path));
        let loaded_content = ContentPrint::of_source(watch.source());
        let scope = ExceptionScope { now_us, entries: None };
        let loaded = Arc::new(load_source(watch.source(), scope, &LoadedExceptions::default())?);
        Ok((Self { watch, loaded_content, in_force: Arc::clone(&loaded) }, loaded))
    }

    /// Checks the files at `now`, and loads them if they changed before the last check and not since. Blocks on the
    /// file system; a million rows take a second to load. `now_us`: the same time in microseconds since the epoch.
    pub fn check_files(&mut self, now: Instant, now_us: u64) -> ExceptionChange {
        let Self { watch, loaded_content, in_force } = self;
        let seen = watch.check(now, |source| {
            let content = ContentPrint::of_source(source);
            let scope = ExceptionScope { now_us, entries: None };
            (content != *loaded_content).then(|| (content, load_source(source, scope, in_force)))
        });
        match seen {
            Seen::Unchanged | Seen::Read(None) => ExceptionChange::Unchanged,
            Seen::Unsettled { is_overdue } => ExceptionChange::Unsettled { is_overdue },
            Seen::Read(Some((content, loaded))) => {
                *loaded_content = content;
                let loaded = loaded.map(Arc::new);
                if let Ok(loaded) = &loaded {
                    *in_force = Arc::clone(loaded);
                }
                ExceptionChange::Loaded(loaded)
            }
        }
    }
}

fn hash_file(path: &Path) -> io::Result<u64> {
    let mut stream = File::open(path)?.take(MAX_FILE_BYTES);
    let mut hasher = DefaultHasher::new();
    let mut chunk = vec![0; 256 << 10];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(bytes) => hasher.write(&chunk[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
