//! The rules in force (rules, files, time of loading), and the results of loads of rules.

use prometheus::{IntCounter, IntGauge, Registry, Result};

use super::family::{counters, gauge};
use crate::reference::metrics::Stats;

/// A successful load of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub rules: usize,
    pub files: usize,
    pub domains: usize,
    /// Microseconds since the epoch.
    pub now_us: u64,
}

#[derive(Debug)]
pub(super) struct RuleFamilies {
    rules: IntGauge,
    files: IntGauge,
    domains: IntGauge,
    loaded_at: IntGauge,
    succeeded: IntCounter,
    failed: IntCounter,
}

impl RuleFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let loads = counters(
            registry,
            "ratelimitd_rule_loads_total",
            "Loads of rules by result; after a failed load the rules before it stay in force",
            &["result"],
        )?;
        Ok(Self {
            rules: gauge(registry, "ratelimitd_rules", "Rules in force")?,
            files: gauge(registry, "ratelimitd_rule_files", "Files of the rules in force")?,
            domains: gauge(
                registry,
                "ratelimitd_rule_domains",
                "Domains of the rules in force; with 0, every request is admitted",
            )?,
            loaded_at: gauge(
                registry,
                "ratelimitd_rules_loaded_timestamp_seconds",
                "When the rules in force were loaded, seconds since the epoch; 0 before",
            )?,
            succeeded: loads.with_label_values(&["success"]),
            failed: loads.with_label_values(&["failure"]),
        })
    }

    pub(super) fn loaded(&self, loaded: Loaded) {
        // All of them are far below 2^63.
        self.rules.set(i64::try_from(loaded.rules).unwrap_or(i64::MAX));
        self.files.set(i64::try_from(loaded.files).unwrap_or(i64::MAX));
        self.domains.set(i64::try_from(loaded.domains).unwrap_or(i64::MAX));
        self.loaded_at.set((loaded.now_us / 1_000_000).cast_signed());
        self.succeeded.inc();
    }

    pub(super) fn failed(&self) {
        self.failed.inc();
    }

    pub(super) fn add_to(&self, stats: &mut Stats) {
        let (succeeded, failed) = (self.succeeded.get(), self.failed.get());
        stats.counter("ratelimit.service.config_load_success", succeeded);
        stats.counter("ratelimit.service.config_load_error", failed);
        stats.counter("runtime.load_attempts", succeeded + failed);
        stats.gauge("runtime.num_values", self.files.get().unsigned_abs());
    }
}
