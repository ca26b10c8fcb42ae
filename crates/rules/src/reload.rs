//! Loads rule files again after a change: when two readings agree and differ from the one in force.
//!
//! The owner of a [`Reloader`] calls [`Reloader::check_files`] at intervals, as long as changes should take effect.
//! Notifications (inotify) would be faster on a local disk, but they behave differently for renames, swapped links,
//! overlays and network file systems. Names, inodes and times show a change on all of them. A check that finds no
//! change starts no thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::file_bytes::SourceFiles;
use super::file_watch::{FileWatch, Seen};
use super::load::{LoadOptions, LoadedRules, compile};
use super::problem::Problems;
use super::source::Source;

/// The result of one check of the files.
#[derive(Debug)]
pub enum Change {
    /// The files are those loaded last.
    Unchanged,
    /// The files changed since the last check, so a writer may not have finished. They are loaded by the first check
    /// that finds no further change, however long that takes. `is_overdue` is true once: when the files have kept
    /// changing for five seconds.
    Unsettled { is_overdue: bool },
    /// The files changed and were loaded. A state of the files is loaded once, also if it has errors.
    Loaded(Box<Result<LoadedRules, Problems>>),
}

/// Loads rules, and loads them again after a change.
#[derive(Debug)]
pub struct Reloader {
    watch: FileWatch,
    options: LoadOptions,
    /// The content of the files loaded last.
    loaded_files: SourceFiles,
    /// The names of the files whose rules are in force.
    in_force: Vec<Arc<str>>,
}

impl Reloader {
    /// Loads the rules at `paths` for the first time. The result is that of [`load`](super::load()); whatever it is,
    /// the files can be checked for changes.
    pub fn start(paths: &[PathBuf], options: LoadOptions) -> (Self, Result<LoadedRules, Problems>) {
        let watch = FileWatch::start(Source::new(paths, options.directory));
        let loaded_files = watch.source().read_files();
        let loaded = compile(&loaded_files, &options, &[]);
        let in_force = loaded.as_ref().map(|loaded| loaded.names.clone()).unwrap_or_default();
        (Self { watch, options, loaded_files, in_force }, loaded)
    }

    /// Checks the files at `now`, and loads them if they changed before the last check and not since. Blocks on the
    /// file system; thousands of rules take long to load.
    pub fn check_files(&mut self, now: Instant) -> Change {
        let files = match self.watch.check(now, Source::read_files) {
            Seen::Unchanged => return Change::Unchanged,
            Seen::Unsettled { is_overdue } => return Change::Unsettled { is_overdue },
            Seen::Read(files) => files,
        };
        let is_same = files == self.loaded_files;
        self.loaded_files = files;
        if is_same {
            return Change::Unchanged;
        }
        let loaded = compile(&self.loaded_files, &self.options, &self.in_force);
        if let Ok(loaded) = &loaded {
            self.in_force.clone_from(&loaded.names);
        }
        Change::Loaded(Box::new(loaded))
    }
}
