//! The arithmetic of envoyproxy/ratelimit. Its counters count hits, not decisions, and overlap: a hit that is near the
//! limit is within it too.

use engine::{Charging, Cost, DecidedBy, LimitResult, Verdict};

use super::stats::Stats;
use crate::telemetry::metrics::series::Count;

/// The hits under one path.
#[derive(Debug, Default)]
pub(super) struct HitCounts {
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
    pub(super) fn record(&self, result: &LimitResult<'_>, near_above: u64) {
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
    pub(super) fn record_undecided(&self, cost: Cost) {
        self.total.add(cost.taken());
    }

    pub(super) fn add_to(&self, stats: &mut Stats, path: impl FnOnce() -> String) {
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
}
