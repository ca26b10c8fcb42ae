//! What became of the attempts to load files that change while the process runs: rules,
//! exceptions and certificates.

/// The attempts to load something. `E` says why an attempt failed. Times are microseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadStatus<E> {
    /// When the version in force was loaded; 0 if none ever was.
    pub(super) loaded_at_us: u64,
    /// Why the newest version is not in force; `None` if it is.
    pub(super) last_error: Option<LoadError<E>>,
    pub(super) loads_ok: u64,
    pub(super) loads_failed: u64,
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadError<E> {
    pub(super) at_us: u64,
    pub(super) reason: E,
}

impl<E> Default for LoadStatus<E> {
    fn default() -> Self {
        Self { loaded_at_us: 0, last_error: None, loads_ok: 0, loads_failed: 0 }
    }
}

impl<E> LoadStatus<E> {
    /// Records that a new version was put in force.
    pub(super) fn record_loaded(&mut self, now_us: u64) {
        self.loaded_at_us = now_us;
        self.last_error = None;
        self.loads_ok += 1;
    }

    /// Records that a new version cannot be used.
    pub(super) fn record_failed(&mut self, reason: E, now_us: u64) {
        self.last_error = Some(LoadError { at_us: now_us, reason });
        self.loads_failed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_lasts_until_the_next_version_is_in_force() {
        let mut status = LoadStatus::default();
        status.record_failed("first", 7);
        status.record_failed("second", 8);
        let last_error = Some(LoadError { at_us: 8, reason: "second" });
        assert_eq!(status, LoadStatus { loaded_at_us: 0, last_error, loads_ok: 0, loads_failed: 2 });
        status.record_loaded(9);
        assert_eq!(status, LoadStatus { loaded_at_us: 9, last_error: None, loads_ok: 1, loads_failed: 2 });
    }
}
