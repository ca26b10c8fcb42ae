//! Records attempts to load files that change while the process runs: rules, exceptions and certificates.

/// Attempts to load something. `E` is the reason of a failure. Times are microseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LoadStatus<E> {
    /// When the current version was loaded; 0 if none was.
    pub(super) loaded_at_us: u64,
    /// Why the newest version was not applied; `None` if it was.
    pub(super) last_error: Option<LoadError<E>>,
    pub(super) loads_ok: u64,
    pub(super) loads_failed: u64,
    /// `true` if the files changed but are unread: a writer may not have finished.
    pub(super) has_unread_change: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadError<E> {
    pub(super) at_us: u64,
    pub(super) reason: E,
}

impl<E> LoadStatus<E> {
    /// `true` if the newest version is current, according to the last check of the files.
    pub(super) fn is_newest(&self) -> bool {
        self.last_error.is_none() && !self.has_unread_change
    }

    pub(super) fn record_loaded(&mut self, now_us: u64) {
        self.loaded_at_us = now_us;
        self.last_error = None;
        self.loads_ok += 1;
        self.has_unread_change = false;
    }

    pub(super) fn record_failed(&mut self, reason: E, now_us: u64) {
        self.last_error = Some(LoadError { at_us: now_us, reason });
        self.loads_failed += 1;
        self.has_unread_change = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_lasts_until_the_next_version_is_in_force() {
        let mut status = LoadStatus { has_unread_change: true, ..LoadStatus::default() };
        status.record_failed("first", 7);
        status.record_failed("second", 8);
        let last_error = Some(LoadError { at_us: 8, reason: "second" });
        assert_eq!(status, LoadStatus { last_error, loads_failed: 2, ..LoadStatus::default() });
        assert!(!status.is_newest());
        status.record_loaded(9);
        let loaded = LoadStatus { loaded_at_us: 9, loads_ok: 1, loads_failed: 2, ..LoadStatus::default() };
        assert_eq!(status, loaded);
        assert!(status.is_newest());
        status.has_unread_change = true;
        assert!(!status.is_newest());
    }
}
