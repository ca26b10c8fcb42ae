//! What a decision counts, for each of its limits: the outcome, the answers by failure policy, and hits with the
//! arithmetic of envoyproxy/ratelimit. Its counters count hits, not decisions, and overlap: a hit that is near the
//! limit is within it too. `limit_families` makes the meters and shows the counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use engine::{
    ChargedLimit, Charging, Cost, DecidedBy, Decision, FailurePolicy, Limit, LimitResult, Plan, Verdict,
};
use parking_lot::Mutex;
use prometheus::IntCounter;

use super::series::Count;

/// A longer path with values of a request is counted under the path of its rule, so that the memory of a series is
/// bounded.
const MAX_PATH_BYTES: usize = 512;

/// The counters of every limit of one rule set, looked up once when the rules come into force.
#[derive(Debug)]
pub struct LimitMeters {
    /// By `LimitId`; the last one is for per-request overrides. `None` for unlimited rules, which are not counted.
    pub(super) each: Vec<Option<Meter>>,
    pub(super) shadowed: IntCounter,
    pub(super) near_limit_ppm: u32,
    pub(super) values_per_rule: usize,
}

#[derive(Debug)]
pub(super) struct Meter {
    pub(super) counts: Arc<LimitCounts>,
    pub(super) policy: FailurePolicy,
    pub(super) hits: Arc<RuleHits>,
}

/// The numbers of the limits with the same labels.
#[derive(Debug, Default)]
pub(super) struct LimitCounts {
    pub(super) ok: Count,
    pub(super) near_limit: Count,
    pub(super) over_limit: Count,
    /// The limit was skipped, because another limit denied the request.
    pub(super) unasked: Count,
    pub(super) shadow: Count,
    pub(super) error: Count,
    /// In the order of [`FailurePolicy::ALL`].
    pub(super) by_policy: [PolicyCount; FailurePolicy::ALL.len()],
}

#[derive(Debug, Default)]
pub(super) struct PolicyCount {
    /// The limit has, or had, this policy.
    pub(super) is_in_use: AtomicBool,
    pub(super) answers: Count,
}

/// The hits of the rules with one path.
#[derive(Debug, Default)]
pub(super) struct RuleHits {
    /// The hits under the path of the rule: all hits, or those that have no place in `by_path`.
    pub(super) own: HitCounts,
    /// The hits under paths with values of requests. There are at most `values_per_rule` paths.
    pub(super) by_path: Mutex<HashMap<Box<str>, Arc<HitCounts>>>,
}

/// The hits under one path.
#[derive(Debug, Default)]
pub(super) struct HitCounts {
    pub(super) total: Count,
    pub(super) over: Count,
    pub(super) near: Count,
    pub(super) within: Count,
    pub(super) shadow: Count,
    pub(super) from_cache: Count,
}

/// The numbers on which the counting of hits depends, beside the decision.
#[derive(Clone, Copy, Debug)]
struct HitBounds {
    /// A hit is near its limit when more units than this are used.
    near_above: u64,
    /// At most this many paths with values for each rule.
    values_per_rule: usize,
}

impl LimitMeters {
    /// Counts a decision, once for each of its charges.
    pub fn record(&self, decision: &Decision) {
        if decision.shadowed {
            self.shadowed.inc();
        }
        for (charged, result) in decision.charges() {
            let Some(meter) = self.meter(charged.limit) else { continue };
            let bounds = self.bounds(charged.limit);
            match result {
                Some(result) => meter.record(&charged, &result, bounds),
                None => {
                    meter.counts.unasked.add(1);
                    meter.hits.record_undecided(&charged, bounds);
                }
            }
        }
    }

    /// Counts a request that fails because the store did not answer: an error for each of its limits, and an answer by
    /// policy for the limits with the policy `error`, which made the request fail.
    pub fn record_failure(&self, plan: &Plan) {
        for charged in plan.charged() {
            let Some(meter) = self.meter(charged.limit) else { continue };
            meter.counts.error.add(1);
            if meter.policy == FailurePolicy::Error {
                meter.count_policy();
            }
            meter.hits.record_undecided(&charged, self.bounds(charged.limit));
        }
    }

    fn meter(&self, limit: &Limit) -> Option<&Meter> {
        self.each.get(limit.id.0 as usize)?.as_ref()
    }

    fn bounds(&self, limit: &Limit) -> HitBounds {
        // Both factors are below 2^32.
        let near_above = u64::from(limit.spec.capacity()) * u64::from(self.near_limit_ppm) / 1_000_000;
        HitBounds { near_above, values_per_rule: self.values_per_rule }
    }
}

impl Meter {
    fn record(&self, charged: &ChargedLimit<'_>, result: &LimitResult<'_>, bounds: HitBounds) {
        let outcome = result.outcome;
        let is_by_policy = matches!(outcome.decided_by, DecidedBy::Policy(_));
        let used = u64::from(result.limit.spec.capacity()).saturating_sub(outcome.report.remaining);
        let counts = &self.counts;
        let count = match outcome.verdict {
            Verdict::Over if result.is_shadow() => &counts.shadow,
            Verdict::Over => &counts.over_limit,
            // The remaining units of a policy's answer are not those of the limit.
            Verdict::Fits if used > bounds.near_above && !is_by_policy => &counts.near_limit,
            Verdict::Fits => &counts.ok,
        };
        count.add(1);
        if is_by_policy {
            self.count_policy();
        }
        self.hits.record(charged, result, bounds);
    }

    fn count_policy(&self) {
        self.counts.of_policy(self.policy).answers.add(1);
    }
}

impl LimitCounts {
    pub(super) fn of_policy(&self, policy: FailurePolicy) -> &PolicyCount {
        let place = FailurePolicy::ALL.iter().position(|other| *other == policy);
        &self.by_policy[place.expect("ALL has every policy")]
    }
}

impl RuleHits {
    /// Counts a decided charge.
    fn record(&self, charged: &ChargedLimit<'_>, result: &LimitResult<'_>, bounds: HitBounds) {
        self.with_counts(charged.stat_path, bounds, |counts| counts.record(result, bounds.near_above));
    }

    /// Counts a charge that was not decided.
    fn record_undecided(&self, charged: &ChargedLimit<'_>, bounds: HitBounds) {
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
}

/// The hits of one decision, by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hits {
    total: u64,
    over: u64,
    near: u64,
    within: u64,
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
