//! The comparisons of the report: two rule sets, and algorithms.

use std::collections::BTreeSet;

use engine::{LimitSpec, RuleSet};

use super::key_table::{Denials, KeyStatistics};
use super::minutes::{MinuteCounts, TimeAxis};
use super::options::RuleSets;
use super::tally::Tally;
use super::top_keys::shown_key;
use crate::report::{
    AlgorithmCounts, AlgorithmsOfLimit, Comparison, ComparisonTimeline, KeyAlgorithmCount, KeyByAlgorithm,
    share_ppm,
};
use crate::variants::own_label;

/// Compares the candidate rules with the current ones.
pub(super) fn comparison(
    tally: &Tally,
    judged: &RuleSet,
    in_force: &RuleSet,
    axis: TimeAxis,
    has_good: bool,
) -> Comparison {
    let compared = &tally.sums.compared;
    let [[both_admit, only_judged_denies], [only_in_force_denies, both_deny]] =
        compared.each_ref().map(|judged| judged.each_ref().map(MinuteCounts::total));
    let labels = |rules: &RuleSet| -> BTreeSet<String> {
        rules.limits().iter().map(|limit| limit.label.to_string()).collect()
    };
    let (judged_labels, in_force_labels) = (labels(judged), labels(in_force));
    Comparison {
        both_admit,
        only_in_force_denies,
        only_judged_denies,
        both_deny,
        in_force_denied: only_in_force_denies + both_deny,
        in_force_denied_share_ppm: share_ppm(only_in_force_denies + both_deny, tally.sums.requests),
        good_only_judged_denies: has_good.then_some(tally.sums.good_only_judged),
        keys_newly_over: tally.keys.count(KeyStatistics::is_newly_over),
        keys_newly_over_good_only: has_good
            .then(|| tally.keys.count(|key| key.is_newly_over() && key.is_over_good_only())),
        keys_freed: tally.keys.count(KeyStatistics::is_freed),
        only_in_judged: judged_labels.difference(&in_force_labels).cloned().collect(),
        only_in_force: in_force_labels.difference(&judged_labels).cloned().collect(),
        timeline: ComparisonTimeline {
            start_us: axis.start_s * 1_000_000,
            step_s: axis.step_s,
            only_in_force_denies: compared[1][0].steps(&axis),
            only_judged_denies: compared[0][1].steps(&axis),
            both_deny: compared[1][1].steps(&axis),
        },
    }
}

/// A candidate limit as the rule file has it, or as another algorithm.
struct Variation<'r> {
    /// `None`: as the rule file has it.
    variant: Option<usize>,
    label: String,
    spec: &'r LimitSpec,
}

/// The limit itself comes first. Omits algorithms that the limit cannot have.
fn variations(rules: &RuleSets, index: usize) -> impl Iterator<Item = Variation<'_>> {
    let own = &rules.judged.limits()[index].spec;
    let own = Variation { variant: None, label: own_label(own), spec: own };
    let others = rules.variants.iter().enumerate().filter_map(move |(place, variant)| {
        let spec = &variant.rules.limits().get(index)?.spec;
        let label = || variant.label(spec);
        (spec.algorithm == variant.algorithm).then(|| Variation {
            variant: Some(place),
            label: label(),
            spec,
        })
    });
    [own].into_iter().chain(others)
}

/// Each candidate limit that applied to a request, as itself and as every algorithm.
pub(super) fn algorithms(rules: &RuleSets, tally: &Tally, axis: TimeAxis) -> Vec<AlgorithmsOfLimit> {
    if rules.variants.is_empty() {
        return Vec::new();
    }
    let counts = |index: usize, Variation { variant, label, spec }: Variation<'_>| {
        let row = &tally.rows[index];
        let (asked, over) = match variant.map(|variant| &row.variants[variant]) {
            None => (row.asked, &row.over),
            Some(found) => (found.asked, &found.over),
        };
        AlgorithmCounts {
            label,
            algorithm: spec.algorithm.into_str().to_owned(),
            burst: spec.capacity(),
            is_own: variant.is_none(),
            asked,
            over: over.total(),
            over_share_ppm: share_ppm(over.total(), asked),
            keys_over: tally.keys.count_of(index, |key| key.over_as(variant) > 0),
            over_by_step: over.steps(&axis),
        }
    };
    let limits = rules.judged.limits().iter().enumerate();
    limits
        .filter(|(index, limit)| tally.has_report(*index, limit))
        .map(|(index, limit)| AlgorithmsOfLimit {
            rule: limit.label.to_string(),
            algorithms: variations(rules, index).map(|variation| counts(index, variation)).collect(),
        })
        .collect()
}

/// Keys that are over their limit most often, as the rules have it or as any algorithm.
const WORST_KEYS: usize = 3;

/// The worst keys of the whole report, each with its denials by algorithm.
pub(super) fn worst_keys(rules: &RuleSets, tally: &Tally, shows_keys: bool) -> Vec<KeyByAlgorithm> {
    if rules.variants.is_empty() {
        return Vec::new();
    }
    let limits = rules.judged.limits();
    let most = |denials: &Denials| denials.over_by_variant.into_iter().max();
    let is_judged = |(key, denials): &(&KeyStatistics, &Denials)| {
        (key.row as usize) < limits.len() && (denials.over > 0 || most(denials) > Some(0))
    };
    let denied = tally.keys.keys().filter_map(|key| Some((key, key.denials.as_deref()?)));
    let mut keys: Vec<(&KeyStatistics, &Denials)> = denied.filter(is_judged).collect();
    keys.sort_unstable_by(|(key_a, a), (key_b, b)| {
        let by_name = || (key_a.row, &a.key).cmp(&(key_b.row, &b.key));
        (b.over, most(b)).cmp(&(a.over, most(a))).then_with(by_name)
    });
    keys.truncate(WORST_KEYS);
    let report = |(key, denials): (&KeyStatistics, &Denials)| {
        let count = |Variation { variant, label, spec }: Variation<'_>| KeyAlgorithmCount {
            label,
            algorithm: spec.algorithm.into_str().to_owned(),
            burst: spec.capacity(),
            is_own: variant.is_none(),
            over: key.over_as(variant),
        };
        KeyByAlgorithm {
            rule: limits[key.row as usize].label.to_string(),
            key: shown_key(&denials.key, shows_keys),
            asked: key.asked.into(),
            algorithms: variations(rules, key.row as usize).map(count).collect(),
        }
    };
    keys.into_iter().map(report).collect()
}
