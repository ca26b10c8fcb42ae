//! The numbers for the script of the page, in as few bytes as the pictures need.
//!
//! A report has up to 1,500 steps and some hundred points for each rule. A picture 1,000 pixels wide shows fewer.

use engine::Algorithm;
use serde::Serialize;

use super::{heat_map, text};
use crate::report::{Comparison, DemandPoint, DeniedKey, LimitReport, Report, Timeline, WhatIfPoint};

/// Round lengths of a column.
const STEPS_S: [u64; 18] = [
    60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 14_400, 21_600, 43_200, 86_400, 172_800, 345_600,
    604_800, 1_209_600, 2_419_200,
];
/// Keys that the slider names.
const KEYS: usize = 10;

/// Points of a curve and columns of a picture over time, by the number of rules: 20 rules have to fit into 400 KB.
pub(super) fn points(rules: usize) -> usize {
    (1_240 / rules.max(1)).clamp(62, 160)
}

/// The content of the JSON block.
#[derive(Serialize)]
pub(super) struct PageData<'r> {
    rules: Vec<RuleData<'r>>,
    comparison: Option<Series>,
    #[serde(skip)]
    points: usize,
}

impl<'r> PageData<'r> {
    pub fn new(report: &Report, rules: &[&'r LimitReport]) -> Self {
        let points = points(rules.len());
        Self {
            rules: rules.iter().map(|rule| RuleData::new(rule, points)).collect(),
            comparison: report.comparison.as_ref().map(|comparison| comparison_columns(comparison, points)),
            points,
        }
    }

    /// Points of a curve and columns of a picture.
    pub fn points(&self) -> usize {
        self.points
    }

    pub fn rules(&self) -> &[RuleData<'r>] {
        &self.rules
    }

    pub fn comparison(&self) -> Option<&Series> {
        self.comparison.as_ref()
    }
}

/// The numbers of one rule.
#[derive(Serialize)]
pub(super) struct RuleData<'r> {
    label: &'r str,
    period: String,
    asked: u64,
    keys: u64,
    pub limit: u64,
    pub what_if: WhatIfData,
    pub demand: DemandData,
    pub time: Series,
    /// Requests over the limit by hour of the week, from Monday, 00:00 UTC; -1 for hours that the log does not have.
    pub heat: Option<Vec<i64>>,
    /// The keys most often over the limit, and the limit from which on they would not be over.
    top: Vec<(String, u64)>,
}

impl<'r> RuleData<'r> {
    fn new(rule: &'r LimitReport, points: usize) -> Self {
        let top = rule.top_denied.iter().take(KEYS);
        let kept = |key: &DeniedKey| match is_swept(rule) {
            // The key exceeds all limits of the slider.
            true => key.own_peak.map(|_| key.kept_limit.unwrap_or(u64::MAX)),
            false => key.own_peak,
        };
        Self {
            label: &rule.rule,
            period: text::own_period(rule),
            asked: rule.asked,
            keys: rule.keys,
            limit: rule.limit,
            what_if: WhatIfData::new(rule, points),
            demand: DemandData::new(&rule.keys_by_demand, points),
            time: rule_columns(&rule.timeline, points),
            heat: heat_map::by_hour_of_week(&rule.timeline),
            top: top.filter_map(|key| Some((text::cut(&key.key), kept(key)?))).collect(),
        }
    }
}

/// The points of the slider, by rising limit.
#[derive(Default, Serialize)]
pub(super) struct WhatIfData {
    pub limit: Vec<u64>,
    pub denied: Vec<u64>,
    /// Empty without `good`.
    pub good: Vec<u64>,
    pub keys: Vec<u64>,
    /// The place of the judged limit among the points.
    pub start: usize,
}

impl WhatIfData {
    fn new(rule: &LimitReport, most: usize) -> Self {
        let mut marks = vec![rule.limit];
        marks.extend(rule.in_force.as_ref().map(|in_force| in_force.limit));
        marks.extend(recommended(rule));
        let points = &rule.what_if.points;
        let is_kept = |point: &WhatIfPoint| marks.contains(&point.limit);
        let mut data = Self::default();
        for point in thinned(points, most, is_kept) {
            if point.limit <= rule.limit {
                data.start = data.limit.len();
            }
            data.limit.push(point.limit);
            data.denied.push(point.denied);
            data.good.extend(point.good_denied);
            data.keys.push(point.keys_over);
        }
        data
    }

    /// The place of a limit among the points.
    pub fn place(&self, limit: u64) -> Option<usize> {
        self.limit.iter().position(|point| *point == limit)
    }
}

/// The limit that is recommended, if there is one.
pub(super) fn recommended(rule: &LimitReport) -> Option<u64> {
    let recommendation = rule.recommendation.as_ref()?;
    recommendation.no_recommendation.is_none().then_some(recommendation.limit)
}

/// Whether each point of the curve was decided by the algorithm of the limit. The points of a fixed window are read off
/// the peaks of the keys.
pub(super) fn is_swept(rule: &LimitReport) -> bool {
    rule.algorithm != Algorithm::FixedWindow.name()
}

#[derive(Default, Serialize)]
pub(super) struct DemandData {
    pub rank: Vec<u64>,
    pub units: Vec<u64>,
}

impl DemandData {
    fn new(points: &[DemandPoint], most: usize) -> Self {
        let kept = thinned(points, most, |_| false);
        Self {
            rank: kept.iter().map(|point| point.rank).collect(),
            units: kept.iter().map(|point| point.units).collect(),
        }
    }
}

/// At most about `most` points, spread evenly over the list: the first, the last and all for which `is_kept` holds.
fn thinned<T: Copy>(points: &[T], most: usize, is_kept: impl Fn(&T) -> bool) -> Vec<T> {
    let (count, last) = (points.len(), points.len().saturating_sub(1));
    let is_next = |place: usize| count <= most || place * most / count != (place + 1) * most / count;
    let kept = points
        .iter()
        .enumerate()
        .filter(|(place, point)| *place == 0 || *place == last || is_next(*place) || is_kept(point));
    kept.map(|(_, point)| *point).collect()
}

/// Counts over time; all lists have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Series {
    /// Seconds since the epoch.
    pub start: u64,
    /// Seconds of a column.
    pub step: u64,
    pub names: Vec<&'static str>,
    pub counts: Vec<Vec<u64>>,
}

impl Series {
    /// Joins steps, so that there are at most `most` columns.
    pub fn new((start_us, step_s): (u64, u64), lists: &[(&'static str, &[u64])], most: usize) -> Self {
        let steps = lists.iter().map(|(_, list)| list.len()).max().unwrap_or(0);
        let least_s = step_s * steps.div_ceil(most).max(1) as u64;
        let is_round = |step: &&u64| **step >= least_s && step_s > 0 && step.is_multiple_of(step_s);
        let step = STEPS_S.iter().find(is_round).copied().unwrap_or(least_s);
        let joined =
            step.checked_div(step_s).and_then(|steps| usize::try_from(steps).ok()).unwrap_or(1).max(1);
        let sums = |list: &[u64]| list.chunks(joined).map(|steps| steps.iter().sum()).collect();
        Self {
            start: start_us / 1_000_000,
            step,
            names: lists.iter().map(|(name, _)| *name).collect(),
            counts: lists.iter().map(|(_, list)| sums(list)).collect(),
        }
    }

    /// Series of the picture.
    pub fn count(&self) -> usize {
        self.counts.first().map_or(0, Vec::len)
    }

    /// Seconds since the epoch.
    pub fn end(&self) -> u64 {
        self.start + self.step * self.count() as u64
    }
}

fn rule_columns(timeline: &Timeline, most: usize) -> Series {
    let mut lists = vec![("Requests", timeline.asked.as_slice()), ("Over the limit", &timeline.over)];
    if !timeline.in_force_over.is_empty() {
        lists.push(("Over the limit in force", &timeline.in_force_over));
    }
    Series::new((timeline.start_us, timeline.step_s), &lists, most)
}

fn comparison_columns(comparison: &Comparison, most: usize) -> Series {
    let timeline = &comparison.timeline;
    let lists = [
        ("Denied by both", timeline.both_deny.as_slice()),
        ("Denied only by the new rules", &timeline.only_judged_denies),
        ("Denied only by the rules in force", &timeline.only_in_force_denies),
    ];
    Series::new((timeline.start_us, timeline.step_s), &lists, most)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let columns = Series::new((60_000_000, 60), &[("Requests", &asked)], 160);
        assert_eq!((columns.start, columns.step, columns.count()), (60, 600, 150));
        assert_eq!(columns.counts[0].iter().sum::<u64>(), asked.iter().sum::<u64>());
        assert_eq!(columns.end(), 60 + 1_500 * 60);
    }

    #[test]
    fn the_slider_starts_at_the_judged_limit() {
        let points =
            (1..=500).map(|limit| WhatIfPoint { limit, denied: 500 - limit, ..WhatIfPoint::default() });
        let what_if = crate::report::WhatIf { points: points.collect(), ..Default::default() };
        let data = WhatIfData::new(&LimitReport { limit: 77, what_if, ..LimitReport::default() }, 110);
        assert_eq!((data.limit[data.start], data.denied[data.start]), (77, 423));
        assert_eq!(data.place(77), Some(data.start));
        assert!(data.limit.len() < 120 && data.good.is_empty());
    }
}
