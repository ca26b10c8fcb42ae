//! Keeps the rules in force up to date: takes up what the files say, and remembers what became of it.

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::clock::{Clock, SystemClock};
use crate::limiter::Rulebook;
use crate::rules::{self, LoadOptions, LoadedRules, Problems, Reloader, RulesStatus};
use crate::settings::Settings;
use crate::telemetry::metrics::{self, Metrics};

/// The rules in force and their history.
#[derive(Debug)]
pub(super) struct RuleKeeper {
    /// In force.
    pub(super) rulebook: Arc<Rulebook>,
    /// For the admin page.
    pub(super) status: Arc<Mutex<RulesStatus>>,
    reloader: Reloader,
    metrics: Metrics,
}

impl RuleKeeper {
    /// Puts the first rules in force.
    pub(super) fn start(settings: &Settings, metrics: &Metrics) -> Result<Self, Problems> {
        let options =
            LoadOptions { merge_domains: settings.rules.merge_domains, defaults: settings.defaults };
        let (reloader, loaded) = Reloader::start(std::slice::from_ref(&settings.rules.path), options)?;
        let mut status = RulesStatus::default();
        note_loaded(&mut status, &loaded, metrics);
        Ok(Self {
            rulebook: Arc::new(Rulebook::new(loaded.rules, metrics.clone())),
            status: Arc::new(Mutex::new(status)),
            reloader,
            metrics: metrics.clone(),
        })
    }

    /// Follows the files until `end`, if it is to follow them at all. `changed` is called after every change.
    pub(super) async fn watch(self, is_wanted: bool, changed: impl Fn(), end: impl Future<Output = ()>) {
        if !is_wanted {
            return;
        }
        let take_up = |change: Result<LoadedRules, Problems>| match change {
            Ok(loaded) => {
                note_loaded(&mut self.status.lock(), &loaded, &self.metrics);
                self.rulebook.replace(loaded.rules);
                changed();
            }
            Err(problems) => {
                tracing::error!("the changed rules cannot be used, the old ones stay in force:\n{problems}");
                self.metrics.rules_refused();
                self.status.lock().record_failed(problems, SystemClock.now_us());
            }
        };
        rules::watch(self.reloader, take_up, end).await;
    }
}

fn note_loaded(status: &mut RulesStatus, loaded: &LoadedRules, metrics: &Metrics) {
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let now_us = SystemClock.now_us();
    status.record_loaded(loaded, now_us);
    let (rules, files) = (status.rules, status.files);
    metrics.rules_loaded(metrics::Loaded { rules, files, now_us });
    tracing::info!(files, domains = status.domains.len(), rules, "rules in force");
}
