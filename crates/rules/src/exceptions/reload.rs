//! Reloads exception files after a change.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use base::{Change, Watched};

use super::{CsvColumns, ExceptionScope, LoadedExceptions, load_source};
use crate::problem::Problems;
use crate::source::Source;

/// Loads exception files, and reloads them after a change.
#[derive(Debug)]
pub struct ExceptionReloader {
    files: Watched<Source>,
    columns: CsvColumns,
    in_force: Arc<LoadedExceptions>,
}

impl ExceptionReloader {
    /// Loads the files at `path` for the first time, at `now_us` (microseconds since the epoch). `may_be_missing`: no
    /// path counts as no files.
    ///
    /// # Errors
    /// All problems of all files, including warnings, if at least one is an error.
    pub fn start(
        path: &Path,
        may_be_missing: bool,
        columns: CsvColumns,
        now_us: u64,
    ) -> Result<(Self, Arc<LoadedExceptions>), Problems> {
        let scope = ExceptionScope { now_us, entries: None, columns: Some(&columns) };
        let none = LoadedExceptions::default();
        let (files, loaded) = Watched::start(Source::of_exceptions(path, may_be_missing), |source| {
            load_source(source, scope, &none)
        });
        let in_force = Arc::new(loaded?);
        Ok((Self { files, columns, in_force: Arc::clone(&in_force) }, in_force))
    }

    /// Checks the files at `now`, and loads them if they changed before the last check and not since. `now_us`: the
    /// same time in microseconds since the epoch. Blocks on the file system; a million rows take a second to load.
    pub fn check_files(
        &mut self,
        now: Instant,
        now_us: u64,
    ) -> Change<Result<Arc<LoadedExceptions>, Problems>> {
        let Self { files, columns, in_force } = self;
        let scope = ExceptionScope { now_us, entries: None, columns: Some(columns) };
        let change = files.check(now, |source| load_source(source, scope, in_force).map(Arc::new));
        if let Change::Loaded(Ok(loaded)) = &change {
            *in_force = Arc::clone(loaded);
        }
        change
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
            let (reloader, loaded) =
                ExceptionReloader::start(directory.path(), false, CsvColumns::default(), 0)
                    .expect("valid files");
            assert_eq!(loaded.files.len(), 1);
            Self { directory, reloader, now: Instant::now() }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.directory.path().join(name), text).expect("a file");
        }

        fn check_once(&mut self) -> Change<Result<Arc<LoadedExceptions>, Problems>> {
            self.now += Duration::from_millis(250);
            self.reloader.check_files(self.now, 0)
        }

        /// The number of rows of a load, or the first error.
        fn loaded(&mut self) -> Result<u64, String> {
            match self.check_once() {
                Change::Unsettled { .. } => self.loaded(),
                Change::Loaded(loaded) => loaded
                    .map(|loaded| loaded.files.iter().map(|file| file.rows).sum())
                    .map_err(|problems| problems.first_error().unwrap_or_default()),
                Change::Unchanged => panic!("no change was found"),
            }
        }

        fn assert_unchanged(&mut self) {
            for _ in 0..2 {
                assert!(matches!(self.check_once(), Change::Unchanged));
            }
        }
    }

    #[test]
    fn a_change_is_loaded_once_when_two_checks_agree() {
        let mut watched = Watched::start();
        watched.assert_unchanged();
        watched.write("b.yaml", "- { domain: a, key: k, value: x, block: true }\n");
        assert!(matches!(watched.check_once(), Change::Unsettled { is_overdue: false }));
        watched.write("b.yaml", "- { domain: a, key: k, value: xy, block: true }\n");
        assert!(matches!(watched.check_once(), Change::Unsettled { is_overdue: false }));
        assert_eq!(watched.loaded(), Ok(2));
        watched.assert_unchanged();
        fs::remove_file(watched.directory.path().join("a.csv")).expect("the file");
        assert_eq!(watched.loaded(), Ok(1));
        // The same bytes under a new inode.
        watched.write(".b", "- { domain: a, key: k, value: xy, block: true }\n");
        let path = |name: &str| watched.directory.path().join(name);
        fs::rename(path(".b"), path("b.yaml")).expect("a rename");
        assert!(matches!(watched.check_once(), Change::Unsettled { .. }));
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
                Change::Unsettled { .. } => {}
                Change::Loaded(loaded) => break loaded.expect("valid files").files[0].changes,
                Change::Unchanged => panic!("no change was found"),
            }
        };
        // Compared with the active rows, not with those of the bad file.
        assert_eq!((changes.added, changes.removed, changes.changed), (1, 0, 1));
    }

    #[test]
    fn the_first_files_must_be_valid() {
        let directory = tempfile::tempdir().expect("a folder");
        fs::write(directory.path().join("a.csv"), "x\n").expect("a file");
        let problems = ExceptionReloader::start(directory.path(), false, CsvColumns::default(), 0)
            .expect_err("a bad file");
        assert!(problems.to_string().contains("a.csv:1: unknown column 'x'"));
    }
}
