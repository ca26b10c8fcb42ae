//! Loads files of exceptions again after a change: when two readings agree and differ from the one in force.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher as _;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::{ExceptionScope, LoadedExceptions, load_source, open_bounded};
use crate::file_watch::{FileWatch, Seen};
use crate::problem::{Problem, Problems};
use crate::slow_load::told_if_slow;
use crate::source::{Source, display};

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
        let names: Vec<_> = paths.iter().map(|path| display(path)).collect();
        let files = told_if_slow(&names, || paths.into_iter().map(print).collect());
        Self { files, problems }
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
    let mut stream = open_bounded(path)?;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    const HEADER: &str = "domain,key,value,tier\n";

    /// A directory with `a.csv`, and its reloader.
    struct Watched {
        directory: tempfile::TempDir,
        reloader: ExceptionReloader,
        now: Instant,
    }

    impl Watched {
        #[expect(clippy::disallowed_methods, reason = "the checks of a test need one time to count from")]
        fn start() -> Self {
            let directory = tempfile::tempdir().expect("a folder");
            fs::write(directory.path().join("a.csv"), format!("{HEADER}llm,tenant,acme,pro\n"))
                .expect("a file");
            let (reloader, loaded) = ExceptionReloader::start(directory.path(), 0).expect("valid files");
            assert_eq!(loaded.files.len(), 1);
            Self { directory, reloader, now: Instant::now() }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.directory.path().join(name), text).expect("a file");
        }

        fn check_once(&mut self) -> ExceptionChange {
            self.now += Duration::from_millis(250);
            self.reloader.check_files(self.now, 0)
        }

        /// The number of rows of a load, or the first error.
        fn loaded(&mut self) -> Result<u64, String> {
            match self.check_once() {
                ExceptionChange::Unsettled { .. } => self.loaded(),
                ExceptionChange::Loaded(loaded) => loaded
                    .map(|loaded| loaded.files.iter().map(|file| file.rows).sum())
                    .map_err(|problems| problems.first_error().unwrap_or_default()),
                ExceptionChange::Unchanged => panic!("no change was found"),
            }
        }

        fn assert_unchanged(&mut self) {
            for _ in 0..2 {
                assert!(matches!(self.check_once(), ExceptionChange::Unchanged));
            }
        }
    }

    #[test]
    fn a_change_is_loaded_once_when_two_checks_agree() {
        let mut watched = Watched::start();
        watched.assert_unchanged();
        watched.write("b.yaml", "- { domain: a, key: k, value: x, block: true }\n");
        assert!(matches!(watched.check_once(), ExceptionChange::Unsettled { is_overdue: false }));
        watched.write("b.yaml", "- { domain: a, key: k, value: xy, block: true }\n");
        assert!(matches!(watched.check_once(), ExceptionChange::Unsettled { is_overdue: false }));
        assert_eq!(watched.loaded(), Ok(2));
        watched.assert_unchanged();
        fs::remove_file(watched.directory.path().join("a.csv")).expect("the file");
        assert_eq!(watched.loaded(), Ok(1));
        // The same bytes under a new inode.
        watched.write(".b", "- { domain: a, key: k, value: xy, block: true }\n");
        let path = |name: &str| watched.directory.path().join(name);
        fs::rename(path(".b"), path("b.yaml")).expect("a rename");
        assert!(matches!(watched.check_once(), ExceptionChange::Unsettled { .. }));
        watched.assert_unchanged();
    }

    #[test]
    fn a_bad_file_is_told_once_and_the_next_good_one_is_loaded() {
        let mut watched = Watched::start();
        watched.write("a.csv", &format!("{HEADER}llm,tenant,acme\n"));
        let error = watched.loaded().expect_err("a bad row");
        assert!(
            error.ends_with("a.csv:2: expected 4 columns, found 3; a value with a comma must be in quotes")
        );
        watched.assert_unchanged();
        watched.write("a.csv", &format!("{HEADER}llm,tenant,acme,max\nllm,tenant,other,max\n"));
        let changes = loop {
            match watched.check_once() {
                ExceptionChange::Unsettled { .. } => {}
                ExceptionChange::Loaded(loaded) => break loaded.expect("valid files").files[0].changes,
                ExceptionChange::Unchanged => panic!("no change was found"),
            }
        };
        // Compared with the rows in force, not with those of the bad file.
        assert_eq!((changes.added, changes.removed, changes.changed), (1, 0, 1));
    }

    #[test]
    fn the_first_files_must_be_valid() {
        let directory = tempfile::tempdir().expect("a folder");
        fs::write(directory.path().join("a.csv"), "x\n").expect("a file");
        let problems = ExceptionReloader::start(directory.path(), 0).expect_err("a bad file");
        assert!(problems.to_string().contains("a.csv:1: unknown column 'x'"));
    }
}
