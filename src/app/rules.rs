//! Applies changed rule files while the process runs, and records the result of each attempt.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::{Clock, SystemClock};
use crate::engine::ValueHashing;
use crate::limiter::Rulebook;
use crate::rules::{self, Change, LoadOptions, Problems, Reloader, RulesStatus};
use crate::settings::Settings;
use crate::telemetry::metrics::{self, Metrics};

/// Watches the rule files and puts their rules in force, in the [`Rulebook`] that the limiters read.
#[derive(Debug)]
pub(super) struct RuleWatcher {
    /// Holds the rules in force.
    pub(super) rulebook: Arc<Rulebook>,
    /// For the admin page.
    pub(super) status: Arc<Mutex<RulesStatus>>,
    reloader: Reloader,
    metrics: Metrics,
}

impl RuleWatcher {
    /// Loads the first rules.
    pub(super) fn start(
        settings: &Settings,
        hashing: ValueHashing,
        metrics: &Metrics,
    ) -> Result<Self, Problems> {
        let options =
            LoadOptions { merge_domains: settings.rules.merge_domains, defaults: settings.defaults, hashing };
        rules::on_own_thread(|| {
            let (reloader, loaded) = Reloader::start(std::slice::from_ref(&settings.rules.path), options)?;
            let mut status = RulesStatus::default();
            status.record_loaded(&loaded, SystemClock.now_us());
            let rulebook = Arc::new(Rulebook::new(loaded.rules, metrics.clone()));
            report_load(&status, metrics);
            Ok(Self { rulebook, status: Arc::new(Mutex::new(status)), reloader, metrics: metrics.clone() })
        })
    }

    /// Watches the files until `end`. Calls `on_change` after each change, once its rules are in force.
    pub(super) async fn watch(self, on_change: impl Fn() + Send + 'static, end: impl Future<Output = ()>) {
        let Self { rulebook, status, reloader, metrics } = self;
        let apply = move |change: Change| match change {
            Change::Unchanged | Change::Unsettled => {}
            Change::StillChanging => {
                tracing::warn!("the rule files keep changing, so the rules before the change stay in force");
            }
            Change::Loaded(loaded) => {
                let mut next = status.lock().clone();
                next.record_loaded(&loaded, SystemClock.now_us());
                let old = rulebook.replace(loaded.rules);
                report_load(&next, &metrics);
                *status.lock() = next;
                on_change();
                old.free_when_unused();
            }
            Change::Failed(problems) => {
                tracing::error!("the changed rules cannot be used, the old ones stay in force:\n{problems}");
                metrics.rules_failed();
                status.lock().record_failed(problems, SystemClock.now_us());
            }
        };
        rules::watch(reloader, apply, end).await;
    }
}

/// Logs and counts the rules in force.
fn report_load(status: &RulesStatus, metrics: &Metrics) {
    for warning in status.warnings.all() {
        tracing::warn!("{warning}");
    }
    let RulesStatus { rules, files, loaded_at_us, .. } = *status;
    metrics.rules_loaded(metrics::Loaded { rules, files, now_us: loaded_at_us });
    tracing::info!(files, domains = status.domains.len(), rules, "rules in force");
}
