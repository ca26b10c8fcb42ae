//! Applies changed rule files while the process runs, and records the result of each attempt.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::{Clock, SystemClock};
use crate::engine::ValueHashing;
use crate::limiter::Rulebook;
use crate::rules::{
    self, Change, DirectoryOptions, LoadOptions, LoadedRules, Problems, Reloader, RulesStatus,
};
use crate::settings::{RuleDirectory, Settings};
use crate::telemetry::metrics::{self, Metrics};
use crate::transport::{NotReadyReason, Readiness};

/// How the settings say that rule files are loaded.
#[must_use]
pub fn load_options(settings: &Settings, hashing: ValueHashing) -> LoadOptions {
    let directory = settings.rules.directory;
    let is_beside = matches!(directory, RuleDirectory::AnyFilesAndBeside | RuleDirectory::Optional);
    LoadOptions {
        merge_domains: settings.rules.merge_domains,
        defaults: settings.defaults,
        hashing,
        directory: DirectoryOptions {
            any_name: directory != RuleDirectory::YamlFiles,
            beside: is_beside,
            dot_files: settings.rules.dot_files,
            may_be_missing: directory == RuleDirectory::Optional,
        },
    }
}

/// Watches the rule files and puts their rules in force, in the [`Rulebook`] that the limiters read.
#[derive(Debug)]
pub(super) struct RuleWatcher {
    /// Holds the rules in force.
    pub(super) rulebook: Arc<Rulebook>,
    /// For the admin page.
    pub(super) status: Arc<Mutex<RulesStatus>>,
    reloader: Reloader,
    report: LoadReport,
}

impl RuleWatcher {
    /// Loads the first rules.
    ///
    /// # Errors
    /// When they cannot be used, and the settings do not let the process start without rules.
    pub(super) fn start(
        settings: &Settings,
        options: LoadOptions,
        metrics: &Metrics,
        readiness: &Readiness,
    ) -> Result<Self, Problems> {
        let report = LoadReport {
            metrics: metrics.clone(),
            readiness: readiness.clone(),
            require_domain: settings.rules.require_domain,
        };
        let may_wait = settings.rules.directory != RuleDirectory::YamlFiles;
        rules::on_own_thread(|| {
            let paths = std::slice::from_ref(&settings.rules.path);
            let (reloader, loaded) = Reloader::start(paths, options);
            let mut status = RulesStatus::default();
            let rulebook = match loaded {
                Ok(loaded) => {
                    report.loaded(&mut status, &loaded);
                    Rulebook::new(loaded.rules, metrics.clone())
                }
                Err(problems) if may_wait => {
                    report.first_failed(&mut status, problems);
                    Rulebook::without_rules(metrics.clone())
                }
                Err(problems) => return Err(problems),
            };
            let (rulebook, status) = (Arc::new(rulebook), Arc::new(Mutex::new(status)));
            Ok(Self { rulebook, status, reloader, report })
        })
    }

    /// Watches the files until `end`. Calls `on_change` after each change, once its rules are in force.
    pub(super) async fn watch(self, on_change: impl Fn() + Send + 'static, end: impl Future<Output = ()>) {
        let Self { rulebook, status, reloader, report } = self;
        let apply = move |change: Change| match change {
            Change::Unchanged => status.lock().has_unread_change = false,
            Change::Unsettled => status.lock().has_unread_change = true,
            Change::StillChanging => {
                status.lock().has_unread_change = true;
                tracing::warn!("the rule files keep changing, so the rules before the change stay in force");
            }
            Change::Loaded(loaded) => {
                let mut next = status.lock().clone();
                report.loaded(&mut next, &loaded);
                let old = rulebook.replace(loaded.rules);
                *status.lock() = next;
                // Only now: a caller that is told so must meet the rules.
                report.readiness.clear(NotReadyReason::NoRules);
                on_change();
                old.free_when_unused();
            }
            Change::Failed(problems) => report.failed(&mut status.lock(), problems),
        };
        rules::watch(reloader, apply, end).await;
    }
}

/// Tells the result of each load: to the log, the metrics, the admin page and the health endpoints.
#[derive(Debug)]
struct LoadReport {
    metrics: Metrics,
    readiness: Readiness,
    /// Whether rules without a domain make the process not ready.
    require_domain: bool,
}

impl LoadReport {
    /// The rules are good, and are about to be in force.
    fn loaded(&self, status: &mut RulesStatus, loaded: &LoadedRules) {
        status.record_loaded(loaded, SystemClock.now_us());
        for warning in status.warnings.all() {
            tracing::warn!("{warning}");
        }
        let RulesStatus { rules, files, loaded_at_us: now_us, .. } = *status;
        let domains = status.domains.len();
        self.metrics.rules_loaded(metrics::Loaded { rules, files, domains, now_us });
        tracing::info!(files, domains, rules, "rules in force");
        if domains == 0 {
            tracing::warn!("no rules are in force, so every request is admitted");
        }
        if domains == 0 && self.require_domain {
            self.readiness.set(NotReadyReason::NoDomain);
        } else {
            self.readiness.clear(NotReadyReason::NoDomain);
        }
    }

    fn first_failed(&self, status: &mut RulesStatus, problems: Problems) {
        tracing::error!("the rules cannot be used, so the process is not ready until they can:\n{problems}");
        let first = problems.first_error().unwrap_or_default();
        self.readiness.set_with_detail(NotReadyReason::NoRules, first);
        self.record_failed(status, problems);
    }

    fn failed(&self, status: &mut RulesStatus, problems: Problems) {
        if self.readiness.reasons().contains(NotReadyReason::NoRules) {
            return self.first_failed(status, problems);
        }
        tracing::error!("the changed rules cannot be used, the old ones stay in force:\n{problems}");
        self.record_failed(status, problems);
    }

    fn record_failed(&self, status: &mut RulesStatus, problems: Problems) {
        self.metrics.rules_failed();
        status.record_failed(problems, SystemClock.now_us());
    }
}
