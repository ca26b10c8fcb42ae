//! Reads `tiers` of a limit: maps a tier's name to its limit, `base`, `unlimited`, or a map of limit and burst.

use std::collections::BTreeMap;

use engine::{Limit, LimitSpec, Tier};

use super::fields::Fields;
use super::merge_keys::{EntryReader, MergedValue};
use super::yaml11::ScalarValue;
use super::{FileReport, Position};
use crate::keys::{Section, key_of};
use crate::yaml::{Content, Node};

/// Most tiers of a limit, because each is compiled as a limit of its own. Individual limits of single values belong
/// into exceptions.
const MAX_TIERS: usize = 1_000;

/// The word for a tier with the base limit's numbers.
const BASE: &str = "base";
/// The word for a tier that is not counted.
const UNLIMITED: &str = "unlimited";

/// Reads the tiers. `limit` is the rule's limit without tiers. Invalid tiers are reported and left out.
pub(super) fn read_tiers(
    map: &MergedValue<'_>,
    at: &Position,
    limit: &LimitSpec,
    report: &mut FileReport,
) -> BTreeMap<String, Tier> {
    let mut tiers = BTreeMap::new();
    let mut reader = EntryReader { is_merged: |_| false, report };
    let entries = reader.entries(map, at);
    if entries.is_empty() {
        report.warn(at, "tiers is empty: it does nothing");
    }
    if entries.len() > MAX_TIERS {
        let reason = format!(
            "a limit has at most {MAX_TIERS} tiers, not {}; a row of the exceptions gives one value a number of its own",
            entries.len()
        );
        report.error(at, reason);
        return tiers;
    }
    for entry in entries {
        let Content::Scalar(name) = &entry.key.content else {
            report.error(&at.on_line(entry.line), "the name of a tier is not text");
            continue;
        };
        let here = at.key(&name.text, entry.value.node().line);
        if name.text.is_empty() {
            report.error(&here, "the name of a tier is empty");
        } else if let Some(tier) = read_tier(&entry.value, &here, limit, report) {
            tiers.insert(name.text.to_string(), tier);
        }
    }
    tiers
}

fn read_tier(
    value: &MergedValue<'_>,
    at: &Position,
    limit: &LimitSpec,
    report: &mut FileReport,
) -> Option<Tier> {
    let node = value.node();
    let (tier, fields) = if node.is_map() {
        let fields = Fields::from_map(value, Section::Tier, at.clone(), report);
        (map_tier(&fields, limit, report)?, Some(fields))
    } else {
        let Some(tier) = scalar_tier(node, limit) else {
            report
                .error(at, "a tier is a whole number, 'base', 'unlimited', or a map with requests_per_unit");
            return None;
        };
        (tier, None)
    };
    if let Err(error) = Limit::new(limit.of_tier(tier)) {
        let at = fields.map_or_else(|| at.clone(), |fields| fields.position_of(key_of(&error)));
        report.error(&at, error.to_string());
        return None;
    }
    if let Tier::Limited { requests_per_unit, .. } = tier
        && let counting = limit.of_tier(tier).requests_per_unit
        && counting != requests_per_unit
    {
        let reason = format!("counts as {counting}, because each check reserves that many units");
        report.warn(at, reason);
    }
    Some(tier)
}

fn scalar_tier(node: &Node, limit: &LimitSpec) -> Option<Tier> {
    let Content::Scalar(scalar) = &node.content else { return None };
    match ScalarValue::resolve(scalar) {
        ScalarValue::Int(number) => {
            let requests_per_unit = u64::try_from(number).ok()?;
            Some(Tier::Limited { requests_per_unit, burst: None })
        }
        ScalarValue::Text if &*scalar.text == BASE => {
            Some(Tier::Limited { requests_per_unit: limit.requests_per_unit, burst: limit.burst })
        }
        ScalarValue::Text if &*scalar.text == UNLIMITED => Some(Tier::Unlimited),
        _ => None,
    }
}

fn map_tier(fields: &Fields<'_>, limit: &LimitSpec, report: &mut FileReport) -> Option<Tier> {
    let requests_per_unit = fields.units("requests_per_unit");
    if requests_per_unit.is_none() && !fields.is_reported("requests_per_unit") {
        report.error(&fields.at, "requests_per_unit of the tier is missing");
    }
    let mut burst = fields.integer("burst");
    if burst.is_some() && !limit.algorithm.has_burst() {
        let algorithm = limit.algorithm;
        let reason =
            format!("burst has no effect with {algorithm}; it is for gcra, token_bucket and leaky_bucket");
        report.warn(&fields.position_of("burst"), reason);
        burst = None;
    }
    Some(Tier::Limited { requests_per_unit: requests_per_unit?, burst })
}

#[cfg(test)]
mod tests {
    use engine::{Defaults, ValueHashing};

    use crate::{CalendarOptions, CalendarYears, LoadOptions, RuleDirectory, load_stream};

    fn options() -> LoadOptions {
        LoadOptions {
            merge_domains: false,
            defaults: Defaults::ENVOY_RATELIMIT,
            upgrades: Vec::new(),
            hashing: ValueHashing::NONE,
            directory: RuleDirectory::default(),
            calendars: CalendarOptions::new(CalendarYears { first: 2020, last: 2031 }),
            has_home: false,
        }
    }

    /// The problems of a limit with these keys, on line 4.
    fn problems(keys: &str) -> String {
        let text = format!(
            "domain: d\ndescriptors:\n- key: k\n  rate_limit: {{ unit: day, requests_per_unit: 1000, {keys} }}\n"
        );
        match load_stream("rules", text.as_bytes(), options()) {
            Ok(loaded) => loaded.warnings.to_string(),
            Err(problems) => problems.to_string(),
        }
    }

    #[test]
    fn a_tier_can_have_the_numbers_of_the_limit() {
        assert_eq!(problems("algorithm: gcra, burst: 20, tiers: { free: base, pro: 5000 }"), "");
        let told = problems("tiers: { free: bse }");
        assert!(told.contains("a tier is a whole number, 'base', 'unlimited', or a map"), "{told}");
        let text = "domain: d\ndescriptors:\n- key: k\n  rate_limit: { unit: day, requests_per_unit: 1000, \
                    algorithm: gcra, burst: 20, tiers: { free: base } }\n";
        let shown =
            crate::rlconfig(&load_stream("rules", text.as_bytes(), options()).expect("valid").into_rules());
        assert!(shown.contains("free 1000 (burst 20)"), "{shown}");
    }

    #[test]
    fn a_limit_has_at_most_a_thousand_tiers() {
        let tiers = |count: usize| {
            let tiers: Vec<_> = (1..=count).map(|number| format!("tier{number}: {number}")).collect();
            problems(&format!("tiers: {{ {} }}", tiers.join(", ")))
        };
        assert_eq!(tiers(1_000), "");
        let expected = "rules:4: a limit has at most 1000 tiers, not 1001; a row of the exceptions gives one value a number of its own (at descriptors[0].rate_limit.tiers)";
        assert_eq!(tiers(1_001), expected);
        // Of a file with too many, only the names are read.
        assert!(tiers(30_000).contains("not 30000"));
    }

    #[test]
    fn a_tier_below_the_reserved_units_is_told() {
        let told =
            problems("algorithm: sliding_window, reserve: 500, tiers: { none: 0, low: 100, half: 500 }");
        let expected = "rules:4: warning: counts as 500, because each check reserves that many units (at descriptors[0].rate_limit.tiers.low)";
        assert_eq!(told, expected);
        // A bucket keeps its rate.
        assert_eq!(problems("algorithm: gcra, reserve: 500, tiers: { low: 100 }"), "");
    }
}
