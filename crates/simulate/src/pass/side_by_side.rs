//! The parts of the report that compare: two rule sets, and algorithms.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use engine::{LimitSpec, RuleSet};

use super::key_table::{KeyStatistics, MAX_VARIANTS};
use super::minutes::TimeAxis;
use super::options::RuleSets;
use super::tally::Tally;
use super::top_keys::shown_key;
use crate::report::{
    AlgorithmCounts, AlgorithmsOfLimit, Comparison, ComparisonTimeline, KeyAlgorithmCount, KeyByAlgorithm,
    share_ppm,
};
use crate::variants::own_label;

/// The judged rules against those in force.
pub(super) fn comparison(
    tally: &Tally,
    judged: &RuleSet,
    in_force: &RuleSet,
    axis: TimeAxis,
    has_good: bool,
) -> Comparison {
    let [[both_admit, only_judged_denies], [only_in_force_denies, both_deny]] = tally.sums.compared;
    let weight = tally.keys.weight();
    let keys = |holds: &dyn Fn(&KeyStatistics) -> bool| {
        tally.keys.keys().filter(|key| holds(key)).count() as u64 * weight
    };
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
        keys_newly_over: keys(&KeyStatistics::is_newly_over),
        keys_newly_over_good_only: has_good
            .then(|| keys(&|key| key.is_newly_over() && key.is_over_good_only())),
        keys_freed: keys(&KeyStatistics::is_freed),
        only_in_judged: judged_labels.difference(&in_force_labels).cloned().collect(),
        only_in_force: in_force_labels.difference(&judged_labels).cloned().collect(),
        timeline: ComparisonTimeline {
            start_us: axis.start_s * 1_000_000,
            step_s: axis.step_s,
            only_in_force_denies: tally.sums.only_in_force_by_minute.steps(&axis),
            only_judged_denies: tally.sums.only_judged_by_minute.steps(&axis),
            both_deny: tally.sums.both_deny_by_minute.steps(&axis),
        },
    }
}

/// Each judged limit that was met, as itself and as every algorithm.
pub(super) fn algorithms(rules: &RuleSets, tally: &Tally, axis: TimeAxis) -> Vec<AlgorithmsOfLimit> {
    if rules.variants.is_empty() {
        return Vec::new();
    }
    let met = rules.judged.limits().iter().enumerate().filter(|(index, _)| tally.rows[*index].asked > 0);
    met.map(|(index, limit)| {
        let row = &tally.rows[index];
        let weight = tally.keys.weight();
        let variant_keys_over = |variant: usize| {
            let keys = tally.keys.over_by_algorithm().filter(|key| key.row as usize == index);
            keys.filter(|key| key.over[variant] > 0).count() as u64 * weight
        };
        let counts = |label, spec: &LimitSpec, asked, over| AlgorithmCounts {
            label,
            algorithm: spec.algorithm.name().to_owned(),
            burst: spec.capacity(),
            asked,
            over,
            over_share_ppm: share_ppm(over, asked),
            ..AlgorithmCounts::default()
        };
        let own = AlgorithmCounts {
            is_own: true,
            keys_over: tally.keys.keys_of(index).filter(|key| key.over() > 0).count() as u64 * weight,
            over_by_step: row.over_by_minute.steps(&axis),
            ..counts(own_label(&limit.spec), &limit.spec, row.asked, row.over)
        };
        let variants = rules.variants.iter().zip(&row.variants).enumerate();
        let others = variants.filter_map(|(bit, (variant, found))| {
            let limit = variant.rules.limits().get(index)?;
            // A limit that cannot be of this algorithm stayed as it is.
            (limit.spec.algorithm == variant.algorithm).then(|| AlgorithmCounts {
                keys_over: variant_keys_over(bit),
                over_by_step: found.over_by_minute.steps(&axis),
                ..counts(variant.label(&limit.spec), &limit.spec, found.asked, found.over)
            })
        });
        AlgorithmsOfLimit {
            rule: limit.label.to_string(),
            algorithms: [own].into_iter().chain(others).collect(),
        }
    })
    .collect()
}

/// The keys that are over their limit most often, as the rules have it or as any algorithm.
const WORST_KEYS: usize = 3;

/// A key of a judged limit.
struct Candidate<'t> {
    row: usize,
    key: &'t str,
    asked: u64,
    /// Requests over the limit itself.
    over: u64,
    by_variant: [u64; MAX_VARIANTS],
}

/// The worst keys of the whole report, each with its denials by algorithm.
pub(super) fn worst_keys(rules: &RuleSets, tally: &Tally, shows_keys: bool) -> Vec<KeyByAlgorithm> {
    if rules.variants.is_empty() {
        return Vec::new();
    }
    let mut keys: Vec<Candidate<'_>> = candidates(tally, rules.judged.limits().len());
    let rank = |key: &Candidate<'_>| Reverse((key.over, key.by_variant.iter().copied().max()));
    keys.sort_unstable_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| (a.row, a.key).cmp(&(b.row, b.key))));
    keys.truncate(WORST_KEYS);
    let report = |found: Candidate<'_>| {
        let limit = &rules.judged.limits()[found.row];
        let count = |label, spec: &LimitSpec, over, is_own| KeyAlgorithmCount {
            label,
            algorithm: spec.algorithm.name().to_owned(),
            burst: spec.capacity(),
            is_own,
            over,
        };
        let others = rules.variants.iter().zip(found.by_variant).filter_map(|(variant, over)| {
            let limit = variant.rules.limits().get(found.row)?;
            let label = || variant.label(&limit.spec);
            (limit.spec.algorithm == variant.algorithm).then(|| count(label(), &limit.spec, over, false))
        });
        let own = count(own_label(&limit.spec), &limit.spec, found.over, true);
        KeyByAlgorithm {
            rule: limit.label.to_string(),
            key: shown_key(found.key, shows_keys),
            asked: found.asked,
            algorithms: [own].into_iter().chain(others).collect(),
        }
    };
    keys.into_iter().map(report).collect()
}

/// The keys that were over one of the first `limits` limits, as the rules have it or as any algorithm.
fn candidates(tally: &Tally, limits: usize) -> Vec<Candidate<'_>> {
    let by_algorithm = tally.keys.over_by_algorithm().map(|found| {
        let (row, key) = (found.row as usize, &*found.key);
        let statistics = tally.keys.get(row, key);
        let (over, asked) = statistics.map_or((0, 0), |found| (found.over(), u64::from(found.asked)));
        Candidate { row, key, asked, over, by_variant: found.over }
    });
    let only_own = tally.keys.keys().filter(|key| key.over() > 0).filter_map(|key| {
        let (row, text) = (key.row as usize, &*key.denials.as_ref()?.key);
        let is_new = tally.keys.variants_over(row, text).is_none();
        let (asked, over) = (key.asked.into(), key.over());
        is_new.then_some(Candidate { row, key: text, asked, over, by_variant: [0; MAX_VARIANTS] })
    });
    by_algorithm.chain(only_own).filter(|key| key.row < limits).collect()
}
