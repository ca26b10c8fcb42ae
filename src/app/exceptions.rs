//! The current exceptions: loads their files, applies changes while the process runs, and reports them to the log, the
//! metrics and the admin page. Rules and exceptions are replaced independently.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::check_forever;
use base::clock::{Clock, SystemClock, monotonic};
use engine::ExceptionKind;
use parking_lot::Mutex;
use rules::{
    Change, ExceptionReloader, ExceptionScope, FileSummary, LoadedExceptions, Problems, check_against_rules,
    load_exceptions,
};

use super::load_status::LoadStatus;
use crate::decide::limiter::Rulebook;
use crate::settings;
use crate::telemetry::metrics::{Metrics, PulledStats};

/// Why a process cannot start, or a command cannot run, with these exceptions.
#[derive(Debug, thiserror::Error)]
#[error("exceptions.path: cannot load exceptions from {}:\n{problems}", path.display())]
pub struct ExceptionsError {
    path: PathBuf,
    pub problems: Problems,
}

/// Reads exceptions once, for a command.
///
/// # Errors
/// [`ExceptionsError`] if they are invalid.
pub fn read_exceptions(path: &Path, scope: ExceptionScope<'_>) -> Result<LoadedExceptions, ExceptionsError> {
    let loaded = load_exceptions(path, scope, &LoadedExceptions::default());
    loaded.map_err(|problems| ExceptionsError { path: path.to_owned(), problems })
}

/// What the admin page shows.
#[derive(Clone, Debug, Default)]
pub(super) struct ExceptionsStatus {
    pub(super) load: LoadStatus<Problems>,
    pub(super) loaded: Arc<LoadedExceptions>,
    /// Names in the files that the current rules do not have, and other probable mistakes.
    pub(super) warnings: Problems,
}

/// When the current exceptions last matched the files. The metrics exist before the exceptions do.
#[derive(Clone, Debug, Default)]
pub(super) struct ConfirmedAt(Arc<AtomicU64>);

impl ConfirmedAt {
    /// Reads how many seconds ago that was, or how old the process is, if there was no match yet.
    pub(super) fn read_age(self) -> PulledStats<u64> {
        let start_us = SystemClock.now_us();
        Arc::new(move || {
            let since_us = self.0.load(Ordering::Relaxed).max(start_us);
            SystemClock.now_us().saturating_sub(since_us) / 1_000_000
        })
    }

    pub(super) fn shared(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0)
    }
}

/// Clones share the exceptions.
#[derive(Clone, Debug)]
pub(super) struct ActiveExceptions {
    rulebook: Arc<Rulebook>,
    metrics: Metrics,
    pub(super) status: Arc<Mutex<ExceptionsStatus>>,
    confirmed_at: ConfirmedAt,
}

#[derive(Debug)]
pub(super) struct ExceptionWatcher {
    pub(super) active: ActiveExceptions,
    /// `None`: the settings name no files.
    reloader: Option<Box<ExceptionReloader>>,
}

impl ExceptionWatcher {
    /// Loads the exceptions that the settings name, for the first time.
    ///
    /// # Errors
    /// If a file is invalid: starting without it would unblock clients, and change customers' limits.
    pub(super) fn start(
        settings: &settings::Exceptions,
        rulebook: &Arc<Rulebook>,
        metrics: &Metrics,
        confirmed_at: ConfirmedAt,
    ) -> Result<Self, ExceptionsError> {
        let (rulebook, metrics, status) = (Arc::clone(rulebook), metrics.clone(), Arc::default());
        let active = ActiveExceptions { rulebook, metrics, status, confirmed_at };
        let Some(path) = settings.path.as_deref() else { return Ok(Self { active, reloader: None }) };
        let (may_be_missing, columns) = (settings.may_be_missing, settings.columns.clone());
        match ExceptionReloader::start(path, may_be_missing, columns, SystemClock.now_us()) {
            // Nothing to notify: no request has used exceptions yet.
            Ok((reloader, loaded)) => {
                active.replace(loaded, || {});
                Ok(Self { active, reloader: Some(Box::new(reloader)) })
            }
            Err(problems) => Err(ExceptionsError { path: path.to_owned(), problems }),
        }
    }

    /// `true` if the settings name files.
    pub(super) fn has_files(&self) -> bool {
        self.reloader.is_some()
    }

    /// Applies changes. Calls `on_change` after each one, once it has taken effect. Returns only if there are no files.
    pub(super) async fn watch(self, on_change: impl Fn() + Send + 'static) {
        let Self { active, reloader } = self;
        let Some(mut reloader) = reloader else { return };
        check_forever(move || {
            active.apply(reloader.check_files(monotonic(), SystemClock.now_us()), &on_change);
        })
        .await;
    }
}

impl ActiveExceptions {
    fn apply(&self, change: Change<Result<Arc<LoadedExceptions>, Problems>>, on_change: &impl Fn()) {
        match change {
            Change::Unchanged => {
                let mut status = self.status.lock();
                status.load.has_unread_change = false;
                if status.load.last_error.is_none() {
                    self.confirm();
                }
            }
            Change::Unsettled { is_overdue } => {
                self.status.lock().load.has_unread_change = true;
                if is_overdue {
                    tracing::warn!("exception files keep changing; keeping current exceptions");
                }
            }
            Change::Loaded(Ok(loaded)) => self.replace(loaded, on_change),
            Change::Loaded(Err(problems)) => {
                let error = format_args!("exceptions.path:\n{problems}");
                tracing::error!(%error, "cannot load changed exceptions; keeping current exceptions");
                self.metrics.families.exceptions.failed();
                self.status.lock().load.record_failed(problems, SystemClock.now_us());
            }
        }
    }

    /// Applies exceptions, then calls `on_change`, then frees the old ones, which can wait a second. Call it from one
    /// thread at a time.
    fn replace(&self, loaded: Arc<LoadedExceptions>, on_change: impl FnOnce()) {
        let old = self.rulebook.replace_exceptions(Arc::clone(&loaded.exceptions));
        on_change();
        self.confirm();
        self.metrics.families.exceptions.loaded(loaded.kinds().iter());
        for file in loaded.files.iter().chain(&loaded.gone).filter(|file| !file.changes.is_empty()) {
            tell_file(file);
        }
        let warnings = self.warnings(&loaded);
        for warning in warnings.all() {
            tracing::warn!("{warning}");
        }
        let rows: u64 = loaded.files.iter().map(|file| file.rows).sum();
        tracing::info!(files = loaded.files.len(), rows, "exceptions loaded");
        {
            let mut status = self.status.lock();
            status.load.record_loaded(SystemClock.now_us());
            status.loaded = loaded;
            status.warnings = warnings;
        }
        old.free_when_unused();
    }

    /// Checks the current exceptions against new rules. Call it after the rules are applied.
    pub(super) fn compare_with_rules(&self) {
        let loaded = Arc::clone(&self.status.lock().loaded);
        let warnings = self.warnings(&loaded);
        self.status.lock().warnings = warnings;
    }

    /// Without rules every exception would be a mistake.
    fn warnings(&self, loaded: &LoadedExceptions) -> Problems {
        if self.rulebook.has_rules() {
            check_against_rules(loaded, &self.rulebook.rules())
        } else {
            loaded.warnings.clone()
        }
    }

    fn confirm(&self) {
        self.confirmed_at.0.store(SystemClock.now_us(), Ordering::Relaxed);
    }
}

/// Writes the audit log line. It contains no value: a value can be a secret, or a person.
fn tell_file(file: &FileSummary) {
    let of_kind = |wanted| file.kinds.iter().find(|(kind, _)| *kind == wanted).map_or(0, |(_, rows)| rows);
    tracing::info!(
        file = &*file.name,
        rows = file.rows,
        added = file.changes.added,
        removed = file.changes.removed,
        changed = file.changes.changed,
        tier = of_kind(ExceptionKind::Tier),
        limit = of_kind(ExceptionKind::Limit),
        multiplier = of_kind(ExceptionKind::Multiplier),
        add = of_kind(ExceptionKind::Add),
        block = of_kind(ExceptionKind::Block),
        exempt = of_kind(ExceptionKind::Exempt),
        shadow_mode = of_kind(ExceptionKind::ShadowMode),
        "exception file changed"
    );
}
