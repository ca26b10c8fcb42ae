//! The current rules, from files or an xDS server: applies new ones, and reports them to the log, the metrics, the
//! admin page and the health endpoints.

use std::sync::Arc;

use base::clock::{Clock, SystemClock};
use engine::RuleSet;
use parking_lot::Mutex;
use rules::{AppliedUpgrades, ChangedLimit, DomainDocuments, LoadedRules, Problems, changed_limits};
use tokio::sync::Notify;

use super::load_status::LoadStatus;
use crate::decide::limiter::Rulebook;
use crate::decide::{NotReadyReason, Readiness};
use crate::telemetry::metrics::{self, Metrics};

/// Limits that the page lists per upgrade.
const MAX_UPGRADED_LISTED: usize = 20;

/// Changed limits that the log and the page list.
const MAX_CHANGED_LISTED: usize = 20;

/// What the admin page shows of the current rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RulesStatus {
    pub(super) load: LoadStatus<Problems>,
    /// Identifies the current rules; empty without rules. See [`LoadedRules::digest`].
    pub(super) digest: String,
    /// The newest rules' digest if they are invalid: for as long as `load` stores the error.
    refused: String,
    /// Number of files or resources.
    pub(super) files: usize,
    pub(super) rules: usize,
    /// In the order of the files, each with its files or resources.
    pub(super) domains: Vec<DomainDocuments>,
    pub(super) warnings: Problems,
    /// The limits that each upgrade has changed.
    pub(super) upgrades: Vec<UpgradeUse>,
    /// What the upgrades have changed, for explanations.
    pub(super) applied: Arc<AppliedUpgrades>,
    /// What the last load changed.
    pub(super) changed: ChangedLimits,
}

/// Limits that count differently since the last load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ChangedLimits {
    pub(super) limits: usize,
    pub(super) first: Vec<ChangedLimit>,
}

impl ChangedLimits {
    fn new(before: &RuleSet, after: &RuleSet) -> Self {
        let mut changed = changed_limits(before, after);
        let first: Vec<_> = changed.by_ref().take(MAX_CHANGED_LISTED).collect();
        Self { limits: first.len() + changed.count(), first }
    }

    fn tell(&self) {
        for ChangedLimit { limit, path, before, after, counters } in &self.first {
            let counters = counters.text();
            tracing::info!(%limit, rule = %path, %before, %after, %counters, "limit changed");
        }
        if self.limits > self.first.len() {
            tracing::info!(
                limits = self.limits,
                logged = MAX_CHANGED_LISTED,
                "limits changed; only the first are logged"
            );
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UpgradeUse {
    pub(super) limits: usize,
    /// Labels of the first ones.
    pub(super) first: Vec<String>,
}

impl RulesStatus {
    /// `true` if the newest rules are current, according to the last check of the files.
    pub(super) fn is_in_force(&self) -> bool {
        self.load.loads_ok > 0 && self.load.is_newest()
    }

    /// If newer rules are invalid, returns their digest.
    pub(super) fn refused(&self) -> Option<&str> {
        self.load.last_error.as_ref().map(|_| self.refused.as_str())
    }

    fn record_loaded(&mut self, loaded: &LoadedRules, now_us: u64) {
        self.load.record_loaded(now_us);
        self.digest.clone_from(&loaded.digest);
        self.files = loaded.files;
        self.rules = loaded.rules.rules().len();
        self.domains.clone_from(&loaded.documents);
        self.warnings = loaded.warnings.clone();
        self.upgrades = upgrade_uses(loaded);
        self.applied = Arc::new(loaded.upgrades.clone());
    }
}

fn upgrade_uses(loaded: &LoadedRules) -> Vec<UpgradeUse> {
    let mut uses = vec![UpgradeUse::default(); loaded.upgrades.rows];
    for upgraded in &loaded.upgrades.limits {
        let limit = loaded.rules.limits().get(upgraded.limit.0 as usize);
        if let (Some(used), Some(limit)) = (uses.get_mut(upgraded.row), limit) {
            used.limits += 1;
            if used.first.len() < MAX_UPGRADED_LISTED {
                used.first.push(format!("{}: {}", limit.label, upgraded.sources));
            }
        }
    }
    uses
}

/// Clones share the rules.
#[derive(Clone, Debug)]
pub(super) struct ActiveRules {
    /// Read by the limiters.
    pub(super) rulebook: Arc<Rulebook>,
    /// For the admin page.
    pub(super) status: Arc<Mutex<RulesStatus>>,
    /// `status` is of other rules, or of newer invalid ones.
    pub(super) news: Arc<Notify>,
    pub(super) metrics: Metrics,
    readiness: Readiness,
    /// `true` if the process is ready only while the rules have a domain.
    require_domain: bool,
}

impl ActiveRules {
    /// Starts without rules, which by itself does not affect `readiness`.
    pub(super) fn without_rules(metrics: &Metrics, readiness: &Readiness, require_domain: bool) -> Self {
        if require_domain {
            readiness.set(NotReadyReason::NoDomain);
        }
        Self {
            rulebook: Arc::new(Rulebook::without_rules(metrics.clone())),
            status: Arc::default(),
            news: Arc::default(),
            metrics: metrics.clone(),
            readiness: readiness.clone(),
            require_domain,
        }
    }

    /// `true` once rules have been loaded.
    pub(super) fn has_rules(&self) -> bool {
        self.status.lock().load.loads_ok > 0
    }

    /// Applies rules, then calls `on_change`, then frees the old rules, which can wait a second. Call it from one
    /// thread at a time.
    pub(super) fn replace(&self, loaded: LoadedRules, on_change: impl FnOnce()) {
        let mut next = self.status.lock().clone();
        next.record_loaded(&loaded, SystemClock.now_us());
        let rules = loaded.into_rules();
        next.changed = ChangedLimits::new(&self.rulebook.rules(), &rules);
        let old = self.rulebook.replace(rules);
        self.tell_loaded(&next);
        self.become_ready(next.domains.is_empty());
        *self.status.lock() = next;
        self.news.notify_one();
        on_change();
        old.free_when_unused();
    }

    /// Records that newer rules, with this digest, are invalid. The caller logs it.
    pub(super) fn record_failure(&self, problems: Problems, digest: &str) {
        if self.readiness.has(NotReadyReason::NoRules) {
            let first = problems.first_error().unwrap_or_default();
            self.readiness.set_with_detail(NotReadyReason::NoRules, first);
        }
        self.metrics.families.rules.failed();
        let mut status = self.status.lock();
        status.load.record_failed(problems, SystemClock.now_us());
        digest.clone_into(&mut status.refused);
        self.news.notify_one();
    }

    /// Records why there are no rules yet. `fault`: why the xDS server is not connected; `None`: it is.
    pub(super) fn record_connection(&self, fault: Option<&str>) {
        if self.readiness.has(NotReadyReason::NoRules) {
            let detail = fault.map_or("the xDS server has sent none yet".to_owned(), |reason| {
                format!("xDS server disconnected: {reason}")
            });
            self.readiness.set_with_detail(NotReadyReason::NoRules, detail);
        }
    }

    /// Records that the current rules are the newest.
    pub(super) fn confirm(&self) {
        self.status.lock().load.last_error = None;
    }

    /// Reports the current rules to the log and the metrics.
    fn tell_loaded(&self, status: &RulesStatus) {
        for warning in status.warnings.all() {
            tracing::warn!("{warning}");
        }
        let RulesStatus { rules, files, load: LoadStatus { loaded_at_us: now_us, .. }, .. } = *status;
        let domains = status.domains.len();
        self.metrics.families.rules.loaded(metrics::Loaded { rules, files, domains, now_us }, &status.digest);
        tracing::info!(files, domains, rules, "rules loaded");
        status.changed.tell();
        if domains == 0 {
            tracing::warn!("no rules loaded; every request is admitted");
        }
    }

    /// Updates readiness for new rules: having rules is enough to be ready, unless a domain is missing.
    fn become_ready(&self, is_empty: bool) {
        if is_empty && self.require_domain {
            self.readiness.set(NotReadyReason::NoDomain);
        } else {
            self.readiness.clear(NotReadyReason::NoDomain);
        }
        // Last: once the process is ready, callers must find the rules applied.
        self.readiness.clear(NotReadyReason::NoRules);
    }
}
