//! Applies changed rule files while the process runs, and records the result of each attempt.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::{Clock, SystemClock};
use crate::limiter::Rulebook;
use crate::rules::{self, Change, LoadOptions, LoadedRules, Problems, Reloader, RulesStatus};
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
    pub(super) fn start(settings: &Settings, metrics: &Metrics) -> Result<Self, Problems> {
        let options =
            LoadOptions { merge_domains: settings.rules.merge_domains, defaults: settings.defaults };
        let (reloader, loaded) = Reloader::start(std::slice::from_ref(&settings.rules.path), options)?;
        let mut status = RulesStatus::default();
        record_load(&mut status, &loaded, metrics);
        Ok(Self {
            rulebook: Arc::new(Rulebook::new(loaded.rules, metrics.clone())),
            status: Arc::new(Mutex::new(status)),
            reloader,
            metrics: metrics.clone(),
        })
    }

    /// Watches the files until `end`. Calls `on_change` after each change, once its rules are in force.
    pub(super) async fn watch(self, on_change: impl Fn(), end: impl Future<Output = ()>) {
        let apply = |change: Change| match change {
            Change::Unchanged | Change::Unsettled => {}
            Change::StillChanging => {
                tracing::warn!("the rule files keep changing, so the rules before the change stay in force");
            }
            Change::Loaded(loaded) => {
                record_load(&mut self.status.lock(), &loaded, &self.metrics);
                self.rulebook.replace(loaded.rules);
                on_change();
            }
            Change::Failed(problems) => {
                tracing::error!("the changed rules cannot be used, the old ones stay in force:\n{problems}");
                self.metrics.rules_failed();
                self.status.lock().record_failed(problems, SystemClock.now_us());
            }
        };
        rules::watch(self.reloader, apply, end).await;
    }
}

fn record_load(status: &mut RulesStatus, loaded: &LoadedRules, metrics: &Metrics) {
    for warning in loaded.warnings.all() {
        tracing::warn!("{warning}");
    }
    let now_us = SystemClock.now_us();
    status.record_loaded(loaded, now_us);
    let (rules, files) = (status.rules, status.files);
    metrics.rules_loaded(metrics::Loaded { rules, files, now_us });
    tracing::info!(files, domains = status.domains.len(), rules, "rules in force");
}
