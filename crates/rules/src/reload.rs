//! Detects changes of rule files and loads the files again: when two readings agree and differ from the one in force.
//! `tls::WatchedFiles` has the same rule for certificates.
//!
//! The owner of a [`Reloader`] calls [`Reloader::check_files`] at intervals, as long as changes should take effect.
//! Notifications (inotify) would be faster on a local disk, but they behave differently for renames, swapped links,
//! overlays and network file systems. Names, inodes and times show a change on all of them. A check that finds no
//! change starts no thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::load::{LoadOptions, LoadedRules, compile};
use super::problem::Problems;
use super::source::{Source, SourceFiles, SourceState};

/// Files that keep changing for this long are reported once. They are still not loaded: half of a rule file is valid
/// YAML in most cases, and would put some rules in force without the others.
const REPORT_AFTER: Duration = Duration::from_secs(5);

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

/// A series of checks of which each found a change.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    since: Instant,
    is_reported: bool,
}

/// Loads rules, and loads them again after a change.
#[derive(Debug)]
pub struct Reloader {
    source: Source,
    options: LoadOptions,
    /// The state of the last reading.
    last_read: SourceState,
    /// `None` if the last check found no change.
    unsettled: Option<Unsettled>,
    /// The state of the reading that was loaded last. `None` after the start: a change within the same tick of the file
    /// system's clock leaves the state as it was, so the first check compares the content.
    last_loaded: Option<SourceState>,
    /// The content of the files loaded last.
    loaded_files: SourceFiles,
    /// The names of the files whose rules are in force.
    in_force: Vec<Arc<str>>,
}

impl Reloader {
    /// Loads the rules at `paths` for the first time. The result is that of [`load`](super::load()); whatever it is,
    /// the files can be checked for changes.
    pub fn start(paths: &[PathBuf], options: LoadOptions) -> (Self, Result<LoadedRules, Problems>) {
        let source = Source::new(paths, options.directory);
        // Before the files are read, so that a later change differs from this state.
        let last_read = source.state();
        let loaded_files = source.read_files();
        let loaded = compile(&loaded_files, &options, &[]);
        let in_force = loaded.as_ref().map(|loaded| loaded.names.clone()).unwrap_or_default();
        let reloader =
            Self { source, options, last_read, unsettled: None, last_loaded: None, loaded_files, in_force };
        (reloader, loaded)
    }

    /// Checks the files at `now`, and loads them if they changed before the last check and not since. Blocks on the
    /// file system; thousands of rules take long to load.
    pub fn check_files(&mut self, now: Instant) -> Change {
        let state = self.source.state();
        if state != self.last_read {
            return self.wait_for_writer(state, now);
        }
        if self.last_loaded.as_ref() == Some(&state) {
            self.unsettled = None;
            return Change::Unchanged;
        }
        let files = self.source.read_files();
        // The files may have changed while they were read.
        let state = self.source.state();
        if state != self.last_read {
            return self.wait_for_writer(state, now);
        }
        self.unsettled = None;
        let is_same = files == self.loaded_files;
        self.last_loaded = Some(state);
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

    fn wait_for_writer(&mut self, state: SourceState, now: Instant) -> Change {
        self.last_read = state;
        let unsettled = self.unsettled.get_or_insert(Unsettled { since: now, is_reported: false });
        let is_overdue = !unsettled.is_reported && now.duration_since(unsettled.since) >= REPORT_AFTER;
        unsettled.is_reported |= is_overdue;
        Change::Unsettled { is_overdue }
    }
}
