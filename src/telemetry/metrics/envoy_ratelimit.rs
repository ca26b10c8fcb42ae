//! The Prometheus names and the arithmetic of envoyproxy/ratelimit, so that dashboards made for it continue to work.
//!
//! Its counters count hits, not decisions, and overlap: a hit that is near the limit is within it too.

use std::sync::Arc;

use crate::engine::{Charging, LimitResult, Rule, Verdict};

use super::exposition::{CounterFamily, labels};
use super::series::{Count, SeriesBinding, SeriesTable};

const TOTAL: CounterFamily = family("ratelimit_service_rate_limit_total_hits", "Hits");
const OVER: CounterFamily = family("ratelimit_service_rate_limit_over_limit", "Hits over the limit");
const NEAR: CounterFamily = family(
    "ratelimit_service_rate_limit_near_limit",
    "Hits above near_limit_ratio of the limit and not over it",
);
const WITHIN: CounterFamily =
    family("ratelimit_service_rate_limit_within_limit", "Hits of requests that were not over the limit");
const SHADOW: CounterFamily =
    family("ratelimit_service_rate_limit_shadow_mode", "Hits of requests over the limit of a shadow rule");

const fn family(name: &'static str, help: &'static str) -> CounterFamily {
    CounterFamily { name, help }
}

/// Hits by rule. The labels are the domain and the first two keys of the rule's path; rules with the same labels are
/// summed.
#[derive(Debug, Default)]
pub(super) struct HitFamilies(SeriesTable<Box<str>, HitCounts>);

pub(super) struct HitBinding<'f>(SeriesBinding<'f, Box<str>, HitCounts>);

#[derive(Debug, Default)]
pub(super) struct HitCounts {
    total: Count,
    over: Count,
    near: Count,
    within: Count,
    shadow: Count,
}

impl HitFamilies {
    pub(super) fn bind(&self) -> HitBinding<'_> {
        HitBinding(self.0.bind())
    }

    /// Writes the series of the rules that have met a hit.
    pub(super) fn write(&self, text: &mut String) {
        let rules = self.0.in_force();
        let mut write = |family: CounterFamily, count: fn(&HitCounts) -> &Count| {
            let used = rules.iter().filter(|(_, counts)| counts.total.get() > 0);
            family.write(text, used.map(|(labels, counts)| (labels.to_string(), count(counts).get())));
        };
        write(TOTAL, |counts| &counts.total);
        write(OVER, |counts| &counts.over);
        write(NEAR, |counts| &counts.near);
        write(WITHIN, |counts| &counts.within);
        write(SHADOW, |counts| &counts.shadow);
    }
}

impl HitBinding<'_> {
    pub(super) fn counts(&mut self, rule: &Rule) -> Arc<HitCounts> {
        let [key1, key2] = keys(rule);
        let domain = without_separators(&rule.domain);
        self.0.counts(labels([("domain", &domain), ("key1", &key1), ("key2", &key2)]).into())
    }

    pub(super) fn finish(self) {
        self.0.finish();
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

impl HitCounts {
    pub(super) fn record(&self, result: &LimitResult<'_>, near_above: u64) {
        let hits = hits(&CountBefore::from_result(result), near_above);
        let is_shadowed = result.outcome.verdict == Verdict::Over && result.is_shadow();
        let shadow = if is_shadowed { hits.total } else { 0 };
        let counted = [
            (&self.total, hits.total),
            (&self.over, hits.over),
            (&self.near, hits.near),
            (&self.within, hits.within),
            (&self.shadow, shadow),
        ];
        for (count, hits) in counted.into_iter().filter(|&(_, hits)| hits > 0) {
            count.add(hits);
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

/// The first two parts of a rule's path below its domain, as the statsd mapping of envoyproxy/ratelimit takes them from
/// its statsd name: parts end at dots, and an IPv4 address is spelled with underscores.
fn keys(rule: &Rule) -> [String; 2] {
    let below = rule.path.strip_prefix(&*rule.domain).and_then(|path| path.strip_prefix('.'));
    let flat = without_separators(&with_flat_addresses(below.unwrap_or(&rule.path)));
    let mut parts = flat.split('.');
    [0, 1].map(|_| parts.next().unwrap_or_default().to_owned())
}

/// Replaces the separators of statsd, which its names cannot contain.
fn without_separators(name: &str) -> String {
    name.replace([':', '|'], "_")
}

/// Replaces the dots of IPv4 addresses by underscores. Any four groups of one to three digits count as an address.
fn with_flat_addresses(text: &str) -> String {
    let mut flat = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = address_length(rest.as_bytes()).unwrap_or(0);
        let (part, after) = rest.split_at(length.max(first.len_utf8()));
        if length > 0 {
            flat.push_str(&part.replace('.', "_"));
        } else {
            flat.push_str(part);
        }
        rest = after;
    }
    flat
}

/// The length of the address at the start of the text.
fn address_length(text: &[u8]) -> Option<usize> {
    let mut end = 0;
    for group in 0..4 {
        if group > 0 {
            end += text.get(end).filter(|&&byte| byte == b'.').map(|_| 1)?;
        }
        match text[end..].iter().take(3).take_while(|byte| byte.is_ascii_digit()).count() {
            0 => return None,
            digits => end += digits,
        }
    }
    Some(end)
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
    fn addresses_in_a_path_are_one_part() {
        let cases = [
            ("remote_address_50.0.0.5", "remote_address_50_0_0_5"),
            ("a_1.2.3.4.b_5.6.7.8", "a_1_2_3_4.b_5_6_7_8"),
            ("net_10.0.0.0/8", "net_10_0_0_0/8"),
            ("a_1.2.3.4.5", "a_1_2_3_4.5"),
            // No addresses.
            ("v1.2.path", "v1.2.path"),
            ("a_1.2.3", "a_1.2.3"),
            ("api.example.com", "api.example.com"),
            ("é1.2.3.", "é1.2.3."),
            ("", ""),
        ];
        for (path, flat) in cases {
            assert_eq!(with_flat_addresses(path), flat);
        }
    }
}
