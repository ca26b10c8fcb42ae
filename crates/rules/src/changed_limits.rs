//! Compares new rules with old ones: which limits count differently, and what happens to their counters. For the log
//! and the admin page.

use std::collections::HashMap;

use engine::algorithm::Kernel;
use engine::{Limit, Quantity, Rule, RuleSet};

use crate::show::limit_text;

/// A limit of a rule that both rule sets have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedLimit {
    /// Its name, or the path of its rule.
    pub limit: String,
    pub path: String,
    /// Algorithm and parameters of the old limit, for an operator.
    pub before: String,
    pub after: String,
    pub counters: KeptCounters,
}

/// What happens to the counters of a changed limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptCounters {
    /// Used units stay used.
    Units,
    /// The same share of the burst stays used.
    Share,
    /// Every counter is new: at most one more limit is admitted, once.
    Nothing,
    /// A limit of 0 has no counters. Those of the old limit stay until they expire.
    Unused,
}

impl KeptCounters {
    /// For an operator: the predicate of a sentence about the counters.
    pub fn text(self) -> &'static str {
        match self {
            Self::Units => "keep the used units",
            Self::Share => "keep the used share",
            Self::Nothing => "start at zero",
            Self::Unused => "unused while the limit is 0",
        }
    }
}

/// Returns the limits of `after` that count differently from `before`, in rule order. A limit is identified by the path
/// of its rule and its name. Without a name it is identified by kind and period, or by its index in the rule.
pub fn changed_limits<'r>(
    before: &'r RuleSet,
    after: &'r RuleSet,
) -> impl Iterator<Item = ChangedLimit> + use<'r> {
    let old_rules: HashMap<&str, &Rule> =
        before.rules().iter().map(|rule| (&*rule.path, rule.as_ref())).collect();
    let kept = after.rules().iter().filter_map(move |rule| Some((*old_rules.get(&*rule.path)?, rule)));
    kept.flat_map(|(old_rule, rule)| {
        rule.limits.iter().enumerate().filter_map(move |(place, limit)| {
            change((old_rule, same_limit(old_rule, place, limit)?), (rule, limit))
        })
    })
}

/// The old version of `limit`: equal but for its values.
fn same_limit<'r>(old_rule: &'r Rule, place: usize, limit: &Limit) -> Option<&'r Limit> {
    let same_name = || old_rule.limits.iter().filter(|old_limit| old_limit.spec.name == limit.spec.name);
    if limit.spec.name.is_some() {
        return same_name().next().map(AsRef::as_ref);
    }
    let counts_like = same_name().find(|old_limit| old_limit.counts_like(limit));
    let same_kind = || same_name().find(|old_limit| kind(old_limit) == kind(limit));
    let same_place = || old_rule.limits.get(place).filter(|old_limit| old_limit.spec.name.is_none());
    counts_like.or_else(same_kind).or_else(same_place).map(AsRef::as_ref)
}

fn kind(limit: &Limit) -> Option<String> {
    match limit.quantity {
        Quantity::Limited(kernel) => Some(kernel.fingerprint()),
        Quantity::Unlimited => None,
    }
}

/// `None` if nothing changes for the counters.
fn change((old_rule, old): (&Rule, &Limit), (rule, new): (&Rule, &Limit)) -> Option<ChangedLimit> {
    let (Quantity::Limited(old_kernel), Quantity::Limited(kernel)) = (old.quantity, new.quantity) else {
        return None;
    };
    if old.counts_like(new) && old.fingerprint == new.fingerprint {
        return None;
    }
    // A limit of 0 left the counters of its predecessor alone.
    let was_blocked = matches!(old_kernel, Kernel::Blocked(_)) && old.spec.period == new.spec.period;
    let same_key = (was_blocked || old.fingerprint == new.fingerprint) && old_rule.shard_by == rule.shard_by;
    let counters = match kernel {
        Kernel::Blocked(_) => KeptCounters::Unused,
        Kernel::IntervalBucket(_) => KeptCounters::Nothing,
        _ if !same_key => KeptCounters::Nothing,
        Kernel::Gcra(_) => KeptCounters::Share,
        Kernel::FixedWindow(_)
        | Kernel::CalendarWindow(_)
        | Kernel::SlidingWindow(_)
        | Kernel::SlidingLog(_)
        | Kernel::Slots(_) => KeptCounters::Units,
    };
    Some(ChangedLimit {
        limit: new.label.to_string(),
        path: rule.path.to_string(),
        before: limit_text(old),
        after: limit_text(new),
        counters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CalendarOptions, CalendarYears, LoadOptions, RuleDirectory};
    use engine::{Defaults, ValueHashing};

    fn rules(limits: &str) -> RuleSet {
        let text = format!(
            "domain: d\ndescriptors:\n  - {{ key: same, rate_limit: {{ unit: day, requests_per_unit: 3 }} }}\n  - key: k\n    {limits}\n"
        );
        let options = LoadOptions {
            merge_domains: false,
            defaults: Defaults::ENVOY_RATELIMIT,
            upgrades: Vec::new(),
            hashing: ValueHashing::NONE,
            directory: RuleDirectory::default(),
            calendars: CalendarOptions::new(CalendarYears { first: 2020, last: 2031 }),
            has_home: false,
        };
        crate::load_stream("rules", text.as_bytes(), options).expect("valid rules").into_rules()
    }

    /// Each changed limit: its label, its values before and after, and its counters.
    fn changes(before: &str, after: &str) -> Vec<String> {
        let (before, after) = (rules(before), rules(after));
        let text = |change: ChangedLimit| {
            let ChangedLimit { limit, path, before, after, counters } = change;
            assert_eq!(path, "d.k");
            format!("{limit}: {before} -> {after}: {}", counters.text())
        };
        changed_limits(&before, &after).map(text).collect()
    }

    #[test]
    fn the_counters_of_a_changed_number_are_told() {
        let one = |text: &str| format!("rate_limit: {{ unit: minute, {text} }}");
        let table = [
            ("requests_per_unit: 5", "requests_per_unit: 5, name: n, charging: prepaid", ""),
            (
                "requests_per_unit: 5",
                "requests_per_unit: 6",
                "5 per minute, fixed_window -> 6 per minute, fixed_window: keep the used units",
            ),
            (
                "requests_per_unit: 5, algorithm: gcra",
                "requests_per_unit: 5, algorithm: token_bucket, burst: 9",
                "5 per minute, gcra, burst 5 -> 5 per minute, token_bucket, burst 9: keep the used share",
            ),
            (
                "requests_per_unit: 5, algorithm: token_bucket, refill: interval",
                "requests_per_unit: 6, algorithm: token_bucket, refill: interval",
                "5 per minute, token_bucket, burst 5 -> 6 per minute, token_bucket, burst 6: start at zero",
            ),
            (
                "requests_per_unit: 5",
                "requests_per_unit: 5, algorithm: sliding_log",
                "5 per minute, fixed_window -> 5 per minute, sliding_log: start at zero",
            ),
            (
                "requests_per_unit: 5",
                "requests_per_unit: 5, unit_multiplier: 2",
                "5 per minute, fixed_window -> 5 per 2 minutes, fixed_window: start at zero",
            ),
            (
                "requests_per_unit: 5",
                "requests_per_unit: 0",
                "5 per minute, fixed_window -> 0 per minute, fixed_window: unused while the limit is 0",
            ),
            (
                "requests_per_unit: 0",
                "requests_per_unit: 5",
                "0 per minute, fixed_window -> 5 per minute, fixed_window: keep the used units",
            ),
        ];
        for (before, after, expected) in table {
            let expected = if expected.is_empty() { vec![] } else { vec![format!("d.k: {expected}")] };
            assert_eq!(changes(&one(before), &one(after)), expected, "{before} -> {after}");
        }
    }

    #[test]
    fn limits_are_found_again_by_name_kind_or_place() {
        let several = |limits: &[&str]| {
            let limits = limits.iter().map(|limit| format!("{{ unit: minute, {limit} }}"));
            format!("rate_limits: [{}]", limits.collect::<Vec<_>>().join(", "))
        };
        let named = ["requests_per_unit: 5, name: a", "requests_per_unit: 7, algorithm: gcra, name: b"];
        let swapped = ["requests_per_unit: 8, algorithm: gcra, name: b", "requests_per_unit: 6, name: a"];
        assert_eq!(
            changes(&several(&named), &several(&swapped)),
            [
                "b: 7 per minute, gcra, burst 7 -> 8 per minute, gcra, burst 8: keep the used share",
                "a: 5 per minute, fixed_window -> 6 per minute, fixed_window: keep the used units",
            ]
        );
        // Once a limit has a second one of its kind, its parameters are in its key.
        let one = several(&["requests_per_unit: 5, algorithm: gcra"]);
        let two = several(&[
            "requests_per_unit: 9, algorithm: gcra, burst: 2",
            "requests_per_unit: 5, algorithm: gcra",
        ]);
        assert_eq!(
            changes(&one, &two),
            [
                "d.k: 5 per minute, gcra, burst 5 -> 9 per minute, gcra, burst 2: start at zero",
                "d.k: 5 per minute, gcra, burst 5 -> 5 per minute, gcra, burst 5: start at zero",
            ]
        );
    }

    #[test]
    fn new_rules_and_a_change_of_the_slot_are_no_kept_counters() {
        let new = rules("rate_limit: { unit: day, requests_per_unit: 1 }");
        assert_eq!(changed_limits(&RuleSet::empty(), &new).next(), None);
        let before = "rate_limit: { unit: day, requests_per_unit: 1 }";
        let after = "shard_by: domain\n    rate_limit: { unit: day, requests_per_unit: 2 }";
        let (before, after) = (rules(before), rules(after));
        let counters = changed_limits(&before, &after).map(|change| change.counters);
        assert_eq!(counters.collect::<Vec<_>>(), [KeptCounters::Nothing]);
    }
}
