//! The hits of every rule, by the path of the rule or by paths with values of requests, with the arithmetic of
//! envoyproxy/ratelimit. Its counters count hits, not decisions, and overlap: a hit that is near the
//! limit is within it too.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{ChargedLimit, Charging, Cost, DecidedBy, LimitResult, Verdict};
use parking_lot::Mutex;

use super::reference_stats::{Stats, stat_name};
use super::series::{Count, SeriesBinding, SeriesTable};

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
    /// The hits under the path of the rule: all hits, or those that have no place in `by_path`.
    own: HitCounts,
    /// The hits under paths with values of requests. There are at most `values_per_rule` paths.
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

/// The numbers on which the counting of hits depends, beside the decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HitBounds {
    /// A hit is near its limit when more units than this are used.
    pub(crate) near_above: u64,
    /// At most this many paths with values for each rule.
    pub(crate) values_per_rule: usize,
}

/// The hits under one path.
#[derive(Debug, Default)]
struct HitCounts {
    total: Count,
    over: Count,
    near: Count,
    within: Count,
    shadow: Count,
    from_cache: Count,
}

/// The hits of one decision, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hits {
    total: u64,
    over: u64,
    near: u64,
    within: u64,
}

impl HitCounts {
    fn record(&self, result: &LimitResult<'_>, near_above: u64) {
        let hits = hits(&CountBefore::from_result(result), near_above);
        let shadow = if result.is_shadow() { hits.over } else { 0 };
        let is_cached = matches!(result.outcome.decided_by, DecidedBy::DenyCache(_));
        let from_cache = if is_cached { hits.over } else { 0 };
        let counted = [
            (&self.total, hits.total),
            (&self.over, hits.over),
            (&self.near, hits.near),
            (&self.within, hits.within),
            (&self.shadow, shadow),
            (&self.from_cache, from_cache),
        ];
        for (count, hits) in counted.into_iter().filter(|&(_, hits)| hits > 0) {
            count.add(hits);
        }
    }

    /// Counts hits that the store did not decide.
    fn record_undecided(&self, cost: Cost) {
        self.total.add(cost.taken());
    }

    fn add_to(&self, stats: &mut Stats, path: impl FnOnce() -> String) {
        if self.total.get() == 0 {
            return;
        }
        let path = path();
        let counted = [
            ("total_hits", &self.total),
            ("over_limit", &self.over),
            ("near_limit", &self.near),
            ("within_limit", &self.within),
            ("shadow_mode", &self.shadow),
            ("over_limit_with_local_cache", &self.from_cache),
        ];
        for (counter, count) in counted {
            let units = count.get();
            if units > 0 {
                stats.counter(format!("ratelimit.service.rate_limit.{path}.{counter}"), units);
            }
        }
    }
}

/// The count of a limit before a decision, and the cost that was, or would have been, recorded.
#[derive(Clone, Copy, Debug)]
struct CountBefore {
    limit: u64,
    before: u64,
    cost: u64,
    verdict: Verdict,
}

impl CountBefore {
    fn from_result(result: &LimitResult<'_>) -> Self {
        let (limit, report) = (u64::from(result.limit.spec.capacity()), &result.outcome.report);
        let cost = result.cost.taken();
        let used = limit.saturating_sub(report.remaining) + report.over_by;
        let verdict = result.outcome.verdict;
        let is_recorded = match (verdict, result.limit.spec.charging) {
            (Verdict::Fits, _) => true,
            // The report shows whether the hit was recorded only if there is a debt. Without one the limit was already
            // used up.
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
            // Up to the threshold is not near it.
            (15, 1, false, [0, 0, 1]),
            (16, 1, false, [0, 1, 1]),
            // Across the threshold: the part above it is near.
            (10, 8, false, [0, 2, 8]),
            (16, 4, false, [0, 4, 4]),
            // Across the limit: 16 to 20 is near, the rest over.
            (15, 7, true, [2, 4, 0]),
            (18, 7, true, [5, 2, 0]),
            // Used up before: all of it is over.
            (20, 7, true, [7, 0, 0]),
            (25, 1, true, [1, 0, 0]),
            // A peek is no hit.
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
