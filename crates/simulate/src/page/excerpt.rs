//! Shortens the lists of a report for the page, so that the page is small enough to mail.
//!
//! A report has up to 1,500 steps and some hundred points per limit. A picture 1,000 pixels wide shows fewer.

use std::cmp::Reverse;

use serde::Serialize;

use super::heat_map::{self, HeatMap};
use crate::report::{AlgorithmsOfLimit, ComparisonTimeline, LimitReport, Report, Timeline, WhatIfPoint};

/// Limits with their own section: those with the most requests over the limit. The table has all limits.
const SECTIONS: usize = 20;
const KEYS: usize = 50;
/// Keys that the slider of a section names.
const KEYS_OF_SECTION: usize = 10;
/// Limits whose algorithms are drawn: those with the most requests over the limit.
const ALGORITHM_PICTURES: usize = 3;
/// Round lengths of a column, in seconds.
const COLUMNS_S: [u64; 18] = [
    60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600, 43_200, 86_400, 172_800, 345_600,
    604_800, 1_209_600, 2_419_200,
];

/// What the page's script draws.
#[derive(Serialize)]
pub(super) struct Excerpt {
    report: Report,
    sections: Vec<Section>,
}

#[derive(Serialize)]
struct Section {
    /// Index of the limit in the report.
    rule: usize,
    heat: Option<HeatMap>,
}

impl Excerpt {
    pub fn new(report: &Report) -> Self {
        let limits = &report.limits;
        let places = largest(limits, SECTIONS, |limit| (limit.over, limit.asked));
        // 20 limits have to fit into 400 KB.
        let points = (1_240 / places.len().max(1)).clamp(62, 160);
        // All lists have the same steps.
        let of_limits = limits.first().map(|limit| (limit.timeline.step_s, limit.timeline.over.len()));
        let of_comparison =
            report.comparison.as_ref().map(|found| (found.timeline.step_s, found.timeline.both_deny.len()));
        let (step_s, steps) = of_limits.or(of_comparison).unwrap_or_default();
        let columns = JoinedSteps::new(step_s, steps, points);
        let least_over = least_over(limits);
        let sections = |place: &usize| Section {
            rule: *place,
            heat: heat_map::by_hour_of_week(&limits[*place].timeline),
        };
        let sections = places.iter().map(sections).collect();
        let mut report = report.clone();
        for (place, limit) in report.limits.iter_mut().enumerate() {
            let has_section = places.binary_search(&place).is_ok();
            keep_keys(limit, if has_section { KEYS_OF_SECTION } else { 0 }, least_over);
            if has_section { shorten(limit, points, &columns) } else { clear(limit) }
        }
        if let Some(comparison) = &mut report.comparison {
            join_timeline(&mut comparison.timeline, &columns);
        }
        join_algorithms(&mut report.algorithms, &columns);
        Self { report, sections }
    }
}

/// Indexes of the at most `most` items with the largest counts, ascending.
fn largest<T, C: Ord>(items: &[T], most: usize, count: impl Fn(&T) -> C) -> Vec<usize> {
    let mut places: Vec<usize> = (0..items.len()).collect();
    places.sort_by_key(|place| Reverse(count(&items[*place])));
    places.truncate(most);
    places.sort_unstable();
    places
}

/// The requests over the limit of the last key in the table.
fn least_over(limits: &[LimitReport]) -> u64 {
    let mut over: Vec<u64> = limits.iter().flat_map(|limit| &limit.top_denied).map(|key| key.over).collect();
    over.sort_unstable_by_key(|over| Reverse(*over));
    over.get(KEYS - 1).copied().unwrap_or(0)
}

/// Keeps the keys that the table shows, and at least `least`.
fn keep_keys(limit: &mut LimitReport, least: usize, least_over: u64) {
    let in_table = limit.top_denied.iter().take_while(|key| key.over >= least_over).count();
    limit.top_denied.truncate(least.max(in_table));
    limit.top_denied.shrink_to_fit();
}

/// Shortens the curves of a limit with a section.
fn shorten(limit: &mut LimitReport, points: usize, columns: &JoinedSteps) {
    let mut marks = vec![limit.limit];
    marks.extend(limit.units_in_force());
    marks.extend(limit.recommendation.as_ref().map(|recommendation| recommendation.limit));
    let is_marked = |point: &WhatIfPoint| marks.contains(&point.limit);
    limit.what_if.points = thinned(&limit.what_if.points, points, is_marked);
    limit.keys_by_demand = thinned(&limit.keys_by_demand, points, |_| false);
    let timeline = &mut limit.timeline;
    timeline.step_s = columns.step_s;
    for list in [&mut timeline.asked, &mut timeline.over, &mut timeline.in_force_over] {
        *list = columns.join(list);
    }
}

/// A limit without a section has no curves.
fn clear(limit: &mut LimitReport) {
    limit.what_if.points = Vec::new();
    limit.keys_by_demand = Vec::new();
    limit.peaks = Vec::new();
    limit.timeline = Timeline::default();
}

fn join_timeline(timeline: &mut ComparisonTimeline, columns: &JoinedSteps) {
    timeline.step_s = columns.step_s;
    let ComparisonTimeline { only_in_force_denies, only_judged_denies, both_deny, .. } = timeline;
    for list in [only_in_force_denies, only_judged_denies, both_deny] {
        *list = columns.join(list);
    }
}

/// Only the limits whose algorithms are drawn have steps.
fn join_algorithms(limits: &mut [AlgorithmsOfLimit], columns: &JoinedSteps) {
    let most_over = |limit: &AlgorithmsOfLimit| limit.algorithms.iter().map(|counts| counts.over).max();
    let drawn = largest(limits, ALGORITHM_PICTURES, most_over);
    for (place, limit) in limits.iter_mut().enumerate() {
        let is_drawn = drawn.binary_search(&place).is_ok();
        for counts in &mut limit.algorithms {
            counts.over_by_step = if is_drawn { columns.join(&counts.over_by_step) } else { Vec::new() };
        }
    }
}

/// Thins a list evenly to about `most` points, including the first, the last and all for which `is_kept` holds.
fn thinned<T: Copy>(points: &[T], most: usize, is_kept: impl Fn(&T) -> bool) -> Vec<T> {
    let (count, last) = (points.len(), points.len().saturating_sub(1));
    let is_next = |place: usize| count <= most || place * most / count != (place + 1) * most / count;
    let kept = points
        .iter()
        .enumerate()
        .filter(|(place, point)| *place == 0 || *place == last || is_next(*place) || is_kept(point));
    kept.map(|(_, point)| *point).collect()
}

/// The steps of all lists, joined to columns of a round length.
struct JoinedSteps {
    step_s: u64,
    steps: usize,
}

impl JoinedSteps {
    /// At most `most` columns.
    fn new(step_s: u64, steps: usize, most: usize) -> Self {
        let step_s = step_s.max(1);
        let least_s = step_s * steps.div_ceil(most).max(1) as u64;
        let is_round = |column: &&u64| **column >= least_s && column.is_multiple_of(step_s);
        let column_s = COLUMNS_S.iter().find(is_round).copied().unwrap_or(least_s);
        Self { step_s: column_s, steps: usize::try_from(column_s / step_s).unwrap_or(1) }
    }

    fn join(&self, list: &[u64]) -> Vec<u64> {
        list.chunks(self.steps).map(|steps| steps.iter().sum()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Comparison, DeniedKey, WhatIf};

    #[test]
    fn the_limits_with_most_denials_have_sections_and_curves() {
        let limit = |over| LimitReport {
            over,
            asked: 1_000,
            what_if: WhatIf { points: vec![WhatIfPoint::default()], ..WhatIf::default() },
            timeline: Timeline { step_s: 60, over: vec![over], ..Timeline::default() },
            ..LimitReport::default()
        };
        let report = Report { limits: (0..50).map(limit).collect(), ..Report::default() };
        let Excerpt { report, sections } = Excerpt::new(&report);
        assert_eq!(report.limits.len(), 50);
        let places: Vec<usize> = sections.iter().map(|section| section.rule).collect();
        assert_eq!(places, (30..50).collect::<Vec<usize>>());
        for (place, limit) in report.limits.iter().enumerate() {
            let points = usize::from(place >= 30);
            assert_eq!((limit.what_if.points.len(), limit.timeline.over.len()), (points, points), "{place}");
        }
    }

    #[test]
    fn a_limit_keeps_its_keys_in_the_table_and_on_the_slider() {
        let key = |over| DeniedKey { over, ..DeniedKey::default() };
        let limit = |keys: std::ops::Range<u64>| LimitReport {
            top_denied: keys.rev().map(key).collect(),
            ..LimitReport::default()
        };
        let mut limits: Vec<LimitReport> =
            (0..30).map(|place| limit(place * 100..place * 100 + 40)).collect();
        limits.iter_mut().for_each(|limit| limit.over = limit.top_denied[0].over);
        let Excerpt { report, .. } = Excerpt::new(&Report { limits, ..Report::default() });
        let kept = |place: usize| report.limits[place].top_denied.len();
        assert_eq!([kept(29), kept(28), kept(27), kept(10), kept(9), kept(0)], [40, 10, 10, 10, 0, 0]);
    }

    #[test]
    fn thinning_keeps_the_ends_and_the_marked_points() {
        let all: Vec<u64> = (0..1_000).collect();
        let kept = thinned(&all, 100, |point| *point == 123);
        assert!(kept.len() <= 103, "{}", kept.len());
        assert_eq!((kept.first(), kept.last()), (Some(&0), Some(&999)));
        assert!(kept.contains(&123));
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] <= 10), "evenly spread: {kept:?}");
        assert_eq!(thinned(&all[..100], 100, |_| false), &all[..100]);
        assert!(thinned(&[0_u64; 0], 100, |_| false).is_empty());
    }

    #[test]
    fn joined_steps_keep_their_sum() {
        let asked: Vec<u64> = (0..1_500).collect();
        let columns = JoinedSteps::new(60, asked.len(), 160);
        let joined = columns.join(&asked);
        assert_eq!((columns.step_s, joined.len()), (600, 150));
        assert_eq!(joined.iter().sum::<u64>(), asked.iter().sum::<u64>());
    }

    #[test]
    fn a_comparison_has_its_steps_without_a_limit() {
        let timeline =
            ComparisonTimeline { step_s: 300, both_deny: vec![1; 10], ..ComparisonTimeline::default() };
        let comparison = Some(Comparison { timeline: timeline.clone(), ..Comparison::default() });
        let Excerpt { report, .. } = Excerpt::new(&Report { comparison, ..Report::default() });
        assert_eq!(report.comparison.map(|comparison| comparison.timeline), Some(timeline));
    }

    #[test]
    fn an_empty_report_has_an_excerpt() {
        let Excerpt { report, sections } = Excerpt::new(&Report::default());
        assert!(report == Report::default() && sections.is_empty());
    }
}
