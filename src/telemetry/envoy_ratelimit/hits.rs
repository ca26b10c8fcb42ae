//! Counts the hits of limits with the arithmetic of envoyproxy/ratelimit: hits, not decisions. The counters overlap: a
//! hit near the limit is also within it.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{ChargedLimit, Charging, Cost, DecidedBy, LimitResult, Verdict};
use parking_lot::Mutex;

use super::names::{Stats, stat_name};
use crate::telemetry::metrics::series::{Count, SeriesTable};

/// Path of the limits that requests bring.
pub(crate) const OVERRIDE_PATH: &str = "override.override";

/// A longer path with request values is counted under its rule's path, to bound a series' memory.
const MAX_PATH_BYTES: usize = 512;

/// Hits of the current rules, by rule path; [`OVERRIDE_PATH`] is for limits that requests bring.
pub(crate) type HitFamilies = SeriesTable<Box<str>, RuleHits>;

/// Hits of the rules with one path.
#[derive(Debug, Default)]
pub(crate) struct RuleHits {
    /// Hits under the rule's path: all of them, or those that do not fit into `by_path`.
    own: HitCounts,
    /// Hits under paths with request values, at most `values_per_rule` paths.
    by_path: Mutex<HashMap<Box<str>, Arc<HitCounts>>>,
}

const COUNTERS: [&str; 6] =
    ["total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode", "over_limit_with_local_cache"];

/// Hits under one path, in the order of [`COUNTERS`].
#[derive(Debug, Default)]
struct HitCounts([Count; COUNTERS.len()]);

/// Adds the current rules' hits.
pub(crate) fn add_hits(families: &HitFamilies, stats: &mut Stats) {
    for (path, hits) in families.in_force().iter() {
        hits.own.add_to(stats, || stat_name(path));
        for (path, counts) in hits.by_path.lock().iter() {
            counts.add_to(stats, || stat_name(path));
        }
    }
}

impl RuleHits {
    /// Counts a decided charge. A hit is near its limit if more than `near_above` units are used. There are at most
    /// `values_per_rule` paths with values.
    pub(crate) fn record(
        &self,
        charged: &ChargedLimit<'_>,
        result: &LimitResult<'_>,
        near_above: u64,
        values_per_rule: usize,
    ) {
        self.with_counts(charged.stat_path, values_per_rule, |counts| counts.record(result, near_above));
    }

    pub(crate) fn record_undecided(&self, charged: &ChargedLimit<'_>, values_per_rule: usize) {
        self.with_counts(charged.stat_path, values_per_rule, |counts| counts.record_undecided(charged.cost));
    }

    fn with_counts(&self, path: Option<&str>, values_per_rule: usize, count: impl FnOnce(&HitCounts)) {
        match path.and_then(|path| self.of_path(path, values_per_rule)) {
            Some(counts) => count(&counts),
            None => count(&self.own),
        }
    }

    /// Returns a path's counts; `None` if it is too long, or there are too many paths with values.
    fn of_path(&self, path: &str, values_per_rule: usize) -> Option<Arc<HitCounts>> {
        let mut by_path = self.by_path.lock();
        if let Some(counts) = by_path.get(path) {
            return Some(Arc::clone(counts));
        }
        let has_room = path.len() <= MAX_PATH_BYTES && by_path.len() < values_per_rule;
        has_room.then(|| Arc::clone(by_path.entry(path.into()).or_default()))
    }
}

impl HitCounts {
    fn record(&self, result: &LimitResult<'_>, near_above: u64) {
        let hits = hits(&CountBefore::from_result(result), near_above);
        let shadow = if result.never_denies() { hits.over } else { 0 };
        let is_cached = matches!(result.outcome.decided_by, DecidedBy::DenyCache(_));
        let from_cache = if is_cached { hits.over } else { 0 };
        let units = [hits.total, hits.over, hits.near, hits.within, shadow, from_cache];
        for (count, units) in self.0.iter().zip(units).filter(|&(_, units)| units > 0) {
            count.add(units);
        }
    }

    /// Counts hits that the store did not decide.
    fn record_undecided(&self, cost: Cost) {
        self.0[0].add(cost.taken());
    }

    fn add_to(&self, stats: &mut Stats, path: impl FnOnce() -> String) {
        if self.0[0].get() == 0 {
            return;
        }
        let path = path();
        for (counter, count) in COUNTERS.iter().zip(&self.0) {
            stats.counter(format!("ratelimit.service.rate_limit.{path}.{counter}"), count.get());
        }
    }
}

/// Hits of one decision, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hits {
    total: u64,
    over: u64,
    near: u64,
    within: u64,
}

/// A limit's count before a decision, and the cost that was, or would have been, recorded.
#[derive(Clone, Copy, Debug)]
struct CountBefore {
    limit: u64,
    before: u64,
    cost: u64,
    verdict: Verdict,
}

impl CountBefore {
    fn from_result(result: &LimitResult<'_>) -> Self {
        let (limit, report) = (result.limit.spec.capacity(), &result.outcome.report);
        let cost = result.cost.taken();
        let used = limit.saturating_sub(report.remaining) + report.over_by;
        let verdict = result.outcome.verdict;
        let is_recorded = match (verdict, result.limit.spec.charging) {
            (Verdict::Fits, _) => true,
            // The report shows whether the hit was recorded only if there is a debt. Without one the limit was already
            // exhausted.
            (Verdict::Over, Charging::Postpaid) => report.over_by > 0,
            (Verdict::Over, Charging::Prepaid) => false,
        };
        let before = if is_recorded { used.saturating_sub(cost) } else { used };
        Self { limit, before, cost, verdict }
    }
}

fn hits(count: &CountBefore, near_above: u64) -> Hits {
    let &CountBefore { limit, before, cost, verdict } = count;
    let after = before + cost;
    // The part of `before..after` above `from`.
    let above = |from: u64| after.saturating_sub(before.max(from));
    let nothing = Hits { total: cost, over: 0, near: 0, within: 0 };
    match verdict {
        Verdict::Fits => Hits { near: above(near_above), within: cost, ..nothing },
        Verdict::Over => {
            let over = above(limit);
            Hits { over, near: above(near_above.min(limit)) - over, ..nothing }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_as_envoyproxy_ratelimit_counts_them() {
        // Limit 20, near above 16.
        let cases = [
            // (before, cost, over?, [over, near, within])
            (0, 1, false, [0, 0, 1]),
            // At the threshold is not near.
            (15, 1, false, [0, 0, 1]),
            (16, 1, false, [0, 1, 1]),
            // Across the threshold: the part above is near.
            (10, 8, false, [0, 2, 8]),
            (16, 4, false, [0, 4, 4]),
            // Across the limit: 16 to 20 is near, the rest over.
            (15, 7, true, [2, 4, 0]),
            (18, 7, true, [5, 2, 0]),
            // Already exhausted: all of it is over.
            (20, 7, true, [7, 0, 0]),
            (25, 1, true, [1, 0, 0]),
            // A peek is not a hit.
            (20, 0, true, [0, 0, 0]),
            (3, 0, false, [0, 0, 0]),
        ];
        for (before, cost, is_over, [over, near, within]) in cases {
            let verdict = if is_over { Verdict::Over } else { Verdict::Fits };
            let counted = hits(&CountBefore { limit: 20, before, cost, verdict }, 16);
            assert_eq!(counted, Hits { total: cost, over, near, within }, "{before} + {cost}");
        }
    }

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
