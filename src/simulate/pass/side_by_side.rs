//! The parts of the report that compare: two rule sets, and algorithms.

use std::collections::BTreeSet;

use super::key_table::KeyStatistics;
use super::lane::RuleSets;
use super::minutes::TimeAxis;
use super::tally::Tally;
use crate::engine::{LimitSpec, RuleSet};
use crate::simulate::report::{AlgorithmCounts, AlgorithmsOfRule, Comparison, ComparisonTimeline, share_ppm};

/// The judged rules against those in force.
pub(super) fn comparison(
    tally: &Tally,
    (judged, in_force): (&RuleSet, &RuleSet),
    axis: TimeAxis,
    has_good: bool,
) -> Comparison {
    let [[both_admit, only_new_denies], [only_old_denies, both_deny]] = tally.sums.compared;
    let weight = tally.keys.weight();
    let keys = |holds: &dyn Fn(&KeyStatistics) -> bool| {
        tally.keys.keys().filter(|key| holds(key)).count() as u64 * weight
    };
    let labels = |rules: &RuleSet| -> BTreeSet<String> {
        rules.limits().iter().map(|limit| limit.label.to_string()).collect()
    };
    let (new_labels, old_labels) = (labels(judged), labels(in_force));
    Comparison {
        both_admit,
        only_old_denies,
        only_new_denies,
        both_deny,
        old_denied: only_old_denies + both_deny,
        old_denied_share_ppm: share_ppm(only_old_denies + both_deny, tally.sums.requests),
        good_only_new_denies: has_good.then_some(tally.sums.good_only_new),
        keys_newly_over: keys(&KeyStatistics::is_newly_over),
        keys_newly_over_good_only: has_good
            .then(|| keys(&|key| key.is_newly_over() && key.is_over_good_only())),
        keys_freed: keys(&KeyStatistics::is_freed),
        only_in_new: new_labels.difference(&old_labels).cloned().collect(),
        only_in_old: old_labels.difference(&new_labels).cloned().collect(),
        timeline: ComparisonTimeline {
            start_us: axis.start_s * 1_000_000,
            step_s: axis.step_s,
            only_old_denies: tally.sums.only_old_by_minute.steps(&axis),
            only_new_denies: tally.sums.only_new_by_minute.steps(&axis),
            both_deny: tally.sums.both_deny_by_minute.steps(&axis),
        },
    }
}

/// Each judged limit that was met, as itself and as every algorithm.
pub(super) fn algorithms(rules: &RuleSets, tally: &Tally, axis: TimeAxis) -> Vec<AlgorithmsOfRule> {
    if rules.variants.is_empty() {
        return Vec::new();
    }
    let met = rules.judged.limits().iter().enumerate().filter(|(index, _)| tally.rows[*index].asked > 0);
    met.map(|(index, limit)| {
        let row = &tally.rows[index];
        let keys_over = |holds: &dyn Fn(&KeyStatistics) -> bool| {
            tally.keys.keys_of(index).filter(|key| holds(key)).count() as u64 * tally.keys.weight()
        };
        let counts = |spec: &LimitSpec, asked, over| AlgorithmCounts {
            algorithm: spec.algorithm.name().to_owned(),
            burst: spec.capacity(),
            asked,
            over,
            over_share_ppm: share_ppm(over, asked),
            ..AlgorithmCounts::default()
        };
        let own = AlgorithmCounts {
            is_own: true,
            keys_over: keys_over(&|key| key.over() > 0),
            over_by_step: row.over_by_minute.steps(&axis),
            ..counts(&limit.spec, row.asked, row.over)
        };
        let variants = rules.variants.iter().zip(&row.variants).enumerate();
        let others = variants.filter_map(|(bit, (variant, found))| {
            let limit = variant.rules.limits().get(index)?;
            // A limit that cannot be of this algorithm stayed as it is.
            (limit.spec.algorithm == variant.algorithm).then(|| AlgorithmCounts {
                keys_over: keys_over(&|key| key.algorithms_over & (1 << bit) != 0),
                over_by_step: found.over_by_minute.steps(&axis),
                ..counts(&limit.spec, found.asked, found.over)
            })
        });
        AlgorithmsOfRule {
            rule: limit.label.to_string(),
            algorithms: [own].into_iter().chain(others).collect(),
        }
    })
    .collect()
}
