//! The hits of every rule, by the path of the rule or by paths with values of requests.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{ChargedLimit, LimitResult};
use parking_lot::Mutex;

use super::hits::HitCounts;
use super::stats::{Stats, stat_name};
use crate::telemetry::metrics::series::{SeriesBinding, SeriesTable};

/// A longer path with values of a request is counted under the path of its rule, so that the memory of a series is
/// bounded.
const MAX_PATH_BYTES: usize = 512;

/// The path of the limits that requests bring.
const OVERRIDES: &str = "override.override";

/// The hits of the rules in force, by the path of the rule.
#[derive(Debug)]
pub(crate) struct RuleHitsTable {
    rules: SeriesTable<Box<str>, RuleHits>,
    values_per_rule: usize,
}

/// The hits of the rules with one path.
#[derive(Debug, Default)]
pub(crate) struct RuleHits {
    /// Those under the path of the rule: all of them, or those that have no place in `by_path`.
    own: HitCounts,
    /// Those under paths with values of requests. At most as many as `values_per_rule` of the settings says.
    by_path: Mutex<HashMap<Box<str>, Arc<HitCounts>>>,
}

pub(crate) struct RuleHitsBinding<'t>(SeriesBinding<'t, Box<str>, RuleHits>);

impl RuleHitsTable {
    pub(crate) fn new(values_per_rule: usize) -> Self {
        Self { rules: SeriesTable::default(), values_per_rule }
    }

    pub(crate) fn bind(&self) -> RuleHitsBinding<'_> {
        RuleHitsBinding(self.rules.bind())
    }

    pub(crate) fn values_per_rule(&self) -> usize {
        self.values_per_rule
    }

    pub(super) fn add_to(&self, stats: &mut Stats) {
        for (path, hits) in self.rules.in_force().iter() {
            hits.own.add_to(stats, || stat_name(path));
            for (path, counts) in hits.by_path.lock().iter() {
                counts.add_to(stats, || stat_name(path));
            }
        }
    }
}

impl RuleHitsBinding<'_> {
    pub(crate) fn of_rule(&mut self, path: &str) -> Arc<RuleHits> {
        self.0.counts(path.into())
    }

    pub(crate) fn of_overrides(&mut self) -> Arc<RuleHits> {
        self.0.counts(OVERRIDES.into())
    }

    pub(crate) fn finish(self) {
        self.0.finish();
    }
}

impl RuleHits {
    /// Counts a decided charge.
    pub(crate) fn record(&self, charged: &ChargedLimit<'_>, result: &LimitResult<'_>, bounds: HitBounds) {
        self.with_counts(charged.stat_path, bounds, |counts| counts.record(result, bounds.near_above));
    }

    /// Counts a charge that was not decided.
    pub(crate) fn record_undecided(&self, charged: &ChargedLimit<'_>, bounds: HitBounds) {
        self.with_counts(charged.stat_path, bounds, |counts| counts.record_undecided(charged.cost));
    }

    fn with_counts(&self, path: Option<&str>, bounds: HitBounds, count: impl FnOnce(&HitCounts)) {
        match path.and_then(|path| self.of_path(path, bounds.values_per_rule)) {
            Some(counts) => count(&counts),
            None => count(&self.own),
        }
    }

    /// The counts of a path with values; `None` if it is too long, or if there are too many.
    fn of_path(&self, path: &str, values_per_rule: usize) -> Option<Arc<HitCounts>> {
        let mut by_path = self.by_path.lock();
        if let Some(counts) = by_path.get(path) {
            return Some(Arc::clone(counts));
        }
        let has_room = path.len() <= MAX_PATH_BYTES && by_path.len() < values_per_rule;
        has_room.then(|| Arc::clone(by_path.entry(path.into()).or_default()))
    }
}

/// What the counting of hits depends on, beside the decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HitBounds {
    /// A hit is near its limit when more units than this are used.
    pub(crate) near_above: u64,
    /// At most this many paths with values for each rule.
    pub(crate) values_per_rule: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_bound_are_counted_under_the_path_of_the_rule() {
        let hits = RuleHits::default();
        let count = |path: &str| hits.of_path(path, 2).is_some();
        assert!(count("shop.user_a") && count("shop.user_b") && count("shop.user_a"));
        assert!(!count("shop.user_c"), "there are two already");
        assert!(RuleHits::default().of_path(&"x".repeat(MAX_PATH_BYTES + 1), 2).is_none(), "too long");
        assert!(RuleHits::default().of_path("shop.user_a", 0).is_none());
    }
}
