//! Says when files that are watched are to be read again: when two readings of their state agree and differ from the
//! one in force. `tls::WatchedFiles` has the same rule for certificates.

use std::time::{Duration, Instant};

use super::source::{Source, SourceState};

/// Files that keep changing for this long are reported once. They are still not loaded: half of a rule file is valid
/// YAML in most cases, and would put some rules in force without the others.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// Files that are watched.
#[derive(Debug)]
pub(super) struct FileWatch {
    source: Source,
    /// The state of the last reading.
    last_read: SourceState,
    /// `None` if the last check found no change.
    unsettled: Option<Unsettled>,
    /// The state of the reading that was loaded last. `None` after the start: a change within the same tick of the file
    /// system's clock leaves the state as it was, so the first check compares the content.
    last_loaded: Option<SourceState>,
}

/// A series of checks of which each found a change.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    since: Instant,
    is_reported: bool,
}

/// The result of one check of the files.
pub(super) enum Seen<T> {
    Unchanged,
    /// The files changed since the last check. `is_overdue` is true once: when they have kept changing for five
    /// seconds.
    Unsettled {
        is_overdue: bool,
    },
    /// What was read of the files, which changed before the last check and not since.
    Read(T),
}

impl FileWatch {
    /// Call it before the files are read for the first time, so that a later change differs from the state of now.
    pub fn start(source: Source) -> Self {
        Self { last_read: source.state(), source, unsettled: None, last_loaded: None }
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Checks the files at `now`. Calls `read` if they are to be read, and returns what it read if they did not change
    /// meanwhile.
    pub fn check<T>(&mut self, now: Instant, read: impl FnOnce(&Source) -> T) -> Seen<T> {
        let state = self.source.state();
        if state != self.last_read {
            return self.wait_for_writer(state, now);
        }
        if self.last_loaded.as_ref() == Some(&state) {
            self.unsettled = None;
            return Seen::Unchanged;
        }
        let content = read(&self.source);
        // The files may have changed while they were read.
        let state = self.source.state();
        if state != self.last_read {
            return self.wait_for_writer(state, now);
        }
        self.unsettled = None;
        self.last_loaded = Some(state);
        Seen::Read(content)
    }

    fn wait_for_writer<T>(&mut self, state: SourceState, now: Instant) -> Seen<T> {
        self.last_read = state;
        let unsettled = self.unsettled.get_or_insert(Unsettled { since: now, is_reported: false });
        let is_overdue = !unsettled.is_reported && now.duration_since(unsettled.since) >= REPORT_AFTER;
        unsettled.is_reported |= is_overdue;
        Seen::Unsettled { is_overdue }
    }
}
