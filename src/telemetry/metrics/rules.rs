//! The rules in force: how many, from how many files, since when, and what became of attempts to load others.

use prometheus::{IntCounter, IntGauge, Registry, Result};

use super::family::{counter, counters, gauge};

/// Rules that were put in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// How many there are.
    pub rules: usize,
    /// From how many files.
    pub files: usize,
    /// When, microseconds since the epoch.
    pub now_us: u64,
}

#[derive(Debug)]
pub(super) struct RuleFamilies {
    rules: IntGauge,
    files: IntGauge,
    loaded_at: IntGauge,
    /// Ours and the reference service's.
    successes: [IntCounter; 2],
    failures: [IntCounter; 2],
}

impl RuleFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let loads = counters(
            registry,
            "ratelimitd_rule_loads_total",
            "Attempts to put rules in force; a failure leaves the rules before it",
            &["result"],
        )?;
        let reference = |name: &str| {
            counter(
                registry,
                &format!("ratelimit_service_config_load_{name}"),
                "Attempts to put rules in force, under the name envoyproxy/ratelimit gives it",
            )
        };
        Ok(Self {
            rules: gauge(registry, "ratelimitd_rules", "Rules in force")?,
            files: gauge(registry, "ratelimitd_rule_files", "Files the rules in force came from")?,
            loaded_at: gauge(
                registry,
                "ratelimitd_rules_loaded_timestamp_seconds",
                "When the rules in force were loaded, seconds since the epoch; 0 before",
            )?,
            successes: [loads.with_label_values(&["success"]), reference("success")?],
            failures: [loads.with_label_values(&["failure"]), reference("error")?],
        })
    }

    pub(super) fn loaded(&self, loaded: Loaded) {
        // None of these comes near 2^63.
        self.rules.set(i64::try_from(loaded.rules).unwrap_or(i64::MAX));
        self.files.set(i64::try_from(loaded.files).unwrap_or(i64::MAX));
        self.loaded_at.set((loaded.now_us / 1_000_000).cast_signed());
        self.successes.iter().for_each(IntCounter::inc);
    }

    pub(super) fn refused(&self) {
        self.failures.iter().for_each(IntCounter::inc);
    }
}
