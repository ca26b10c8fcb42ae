//! Builds the report from the counts of a pass.

use base::with_commas;
use engine::{Limit, OnOver, Rule};
use map::Map;

use super::curves::{Curve, SortedPeaks, recommend};
use super::key_table::{KeyStatistics, KeyTable};
use super::minutes::TimeAxis;
use super::options::{PassOptions, RuleSets};
use super::side_by_side::{algorithms, comparison, worst_keys};
use super::sweep::Sweep;
use super::tally::{Row, Sums, Tally};
use super::top_keys::{Shown, top_denied};
use super::tried::{OverAt, SweptLimit, is_swept};
use super::untested::{self, Mapped};
use crate::report::{
    InForceCounts, KeySampling, LimitReport, Method, REPORT_VERSION, Report, Timeline, Totals, WhatIf,
    WhatIfPoint, percent, share_ppm,
};

/// A limit's counts are reliable if its period has this many ticks of the log's clock.
const MIN_TICKS: u64 = 10;

pub(super) fn assemble(
    rules: &RuleSets,
    mapped: Mapped<'_>,
    tally: &Tally,
    mut method: Method,
    options: &PassOptions,
) -> Report {
    let has_good = mapped.map.is_some_and(Map::has_good);
    method.key_sampling = sampling(&tally.keys);
    let compared = if rules.in_force.is_some() { "compare" } else { "rules" };
    method.agreement = tally.agreement.as_ref().and_then(|tally| tally.agreement(compared));
    let context = Context {
        rules,
        tally,
        axis: TimeAxis::new(tally.sums.span_us),
        has_good,
        resolution_us: method.clock_resolution_us,
        options,
    };
    let limits = rules
        .judged
        .rules()
        .iter()
        .flat_map(|rule| rule.limits.iter().map(|limit| (limit.id.0 as usize, &**rule, &**limit)));
    let reports = limits
        .filter(|(index, _, limit)| tally.has_report(*index, limit))
        .map(|(index, rule, limit)| context.limit_report(index, rule, limit));
    let untested = rules
        .judged
        .rules()
        .iter()
        .filter(|rule| rule.limits.iter().all(|limit| !tally.rows[limit.id.0 as usize].is_met));
    let untested: Vec<&Rule> = untested.map(|rule| &**rule).collect();
    let untested_reasons = match tally.sums.requests {
        0 => vec![untested::without_requests(&method, mapped)],
        _ => untested::of_rules(&rules.judged, &untested, mapped),
    };
    let mut report = Report {
        version: REPORT_VERSION,
        totals: totals(&tally.sums, &tally.keys, has_good),
        limits: reports.chain(context.overrides()).collect(),
        untested_rules: untested.iter().map(|rule| rule.path.to_string()).collect(),
        untested_reasons,
        comparison: rules
            .in_force
            .as_ref()
            .map(|in_force| comparison(tally, &rules.judged, in_force, context.axis, has_good)),
        algorithms: algorithms(rules, tally, context.axis),
        worst_keys: worst_keys(rules, tally, options.show_keys),
        method,
        ..Report::default()
    };
    report.verdict = verdict(&report);
    report
}

fn totals(sums: &Sums, keys: &KeyTable, has_good: bool) -> Totals {
    let (first_us, last_us) = sums.span_us.unwrap_or_default();
    Totals {
        requests: sums.requests,
        denied: sums.denied,
        denied_share_ppm: share_ppm(sums.denied, sums.requests),
        shadow_denied: sums.shadow_denied,
        without_limit: sums.without_limit,
        good: has_good.then_some(sums.good),
        good_denied: has_good.then_some(sums.good_denied),
        good_denied_share_ppm: has_good.then(|| share_ppm(sums.good_denied, sums.good)),
        keys: keys.count(|key| key.asked > 0),
        keys_denied: keys.count(|key| key.over() > 0),
        first_us,
        last_us,
    }
}

fn sampling(keys: &KeyTable) -> KeySampling {
    let kept = keys.len() as u64;
    // The relative standard error of a count of n sampled keys is 1 / sqrt(n).
    let error = if keys.level() == 0 { 0 } else { 1_000_000 / kept.isqrt().max(1) };
    KeySampling { level: keys.level(), key_error_ppm: error, kept_keys: kept }
}

struct Context<'a> {
    rules: &'a RuleSets,
    tally: &'a Tally,
    axis: TimeAxis,
    has_good: bool,
    resolution_us: u64,
    options: &'a PassOptions,
}

impl Context<'_> {
    /// The report of overrides, if there were any.
    fn overrides(&self) -> Option<LimitReport> {
        let index = self.rules.judged.limits().len();
        let row = self.tally.rows.get(index).filter(|row| row.asked > 0)?;
        let peaks = self.peaks(index);
        Some(LimitReport {
            rule: "override".to_owned(),
            path: "override".to_owned(),
            is_resolved: true,
            period_s: row.period_s,
            ..self.counts(index, row, &peaks, None)
        })
    }

    fn limit_report(&self, index: usize, rule: &Rule, limit: &Limit) -> LimitReport {
        let row = &self.tally.rows[index];
        let peaks = self.peaks(index);
        // Excludes keys whose limit comes from elsewhere: another value in the rule would not affect them.
        let peaks_by_rule = self.peaks_by_rule(index);
        let is_swept = is_swept(&limit.spec);
        let swept = self.tally.sweep.as_ref().filter(|_| is_swept && !row.is_thinned);
        let swept = swept.and_then(|sweep| sweep.limit(index));
        let curve = if is_swept {
            Curve::Swept(swept.map_or_else(Vec::new, |swept| self.swept_points(index, swept)))
        } else {
            Curve::Windows { row, peaks: &peaks_by_rule, has_good: self.has_good }
        };
        let recommendation = self.options.recommend.map(|bounds| {
            recommend(row, &peaks_by_rule, &curve, self.tally.sums.span_us, self.has_good, bounds)
        });
        let in_force = self.in_force_counts(index);
        let mut marks = vec![limit.spec.requests_per_unit];
        marks.extend(in_force.iter().map(|in_force| in_force.limit));
        marks.extend(recommendation.iter().flat_map(|found| [found.needed, found.limit]));
        let is_exact = !row.has_other_denials
            && !row.is_thinned
            && self.tally.keys.level() == 0
            && if is_swept { self.sweep_evictions() == 0 } else { !row.has_costs };
        let what_if = WhatIf {
            is_exact,
            held_burst: limit.spec.burst.filter(|_| limit.spec.algorithm.has_burst()),
            points: curve.points(&marks),
        };
        LimitReport {
            rule: limit.label.to_string(),
            path: rule.path.to_string(),
            algorithm: limit.spec.algorithm.into_str().to_owned(),
            limit: limit.spec.requests_per_unit,
            burst: limit.spec.capacity(),
            period_s: limit.spec.period.seconds(),
            calendar: limit.spec.calendar.as_ref().map(ToString::to_string),
            shadow: rule.shadow,
            announces: limit.spec.on_over == OnOver::Announce,
            reserve: limit.spec.reserve,
            is_resolved: limit.spec.period.us() >= MIN_TICKS * self.resolution_us,
            what_if,
            recommendation,
            in_force,
            ..self.counts(index, row, &peaks, swept)
        }
    }

    fn swept_points(&self, index: usize, swept: &SweptLimit) -> Vec<WhatIfPoint> {
        let mut keys_over = [0; OverAt::BITS as usize];
        for key in self.judged_keys(index).filter(|key| key.over_at != 0) {
            for (place, keys) in keys_over.iter_mut().enumerate() {
                *keys += u64::from(key.over_at >> place & 1) * self.tally.keys.weight();
            }
        }
        swept.points(self.has_good, &keys_over)
    }

    fn sweep_evictions(&self) -> u64 {
        self.tally.sweep.as_ref().map_or(0, Sweep::evictions)
    }

    fn peaks(&self, index: usize) -> SortedPeaks {
        let keys = self.judged_keys(index);
        SortedPeaks::new(keys.map(|key| &key.peaks), self.tally.keys.weight())
    }

    /// The peaks of the keys that have the rule's own limit.
    fn peaks_by_rule(&self, index: usize) -> SortedPeaks {
        let keys = self.judged_keys(index).filter(|key| key.has_rule_number);
        SortedPeaks::new(keys.map(|key| &key.peaks), self.tally.keys.weight())
    }

    /// Keys that used the candidate limit.
    fn judged_keys(&self, index: usize) -> impl Iterator<Item = &KeyStatistics> {
        self.tally.keys.keys_of(index).filter(|key| key.asked > 0)
    }

    /// The counts that do not depend on the limit.
    fn counts(
        &self,
        index: usize,
        row: &Row,
        peaks: &SortedPeaks,
        swept: Option<&SweptLimit>,
    ) -> LimitReport {
        let keys = &self.tally.keys;
        let shown = Shown {
            keys: self.options.show_keys,
            good: self.has_good,
            in_force: self.rules.in_force.is_some(),
            swept,
        };
        LimitReport {
            is_thinned: row.is_thinned,
            asked: row.asked,
            units: row.units,
            over: row.over.total(),
            over_share_ppm: share_ppm(row.over.total(), row.asked),
            good_over: self.has_good.then_some(row.good_over),
            keys: peaks.keys(),
            keys_over: keys.count_of(index, |key| key.over() > 0),
            keys_over_good_only: self
                .has_good
                .then(|| keys.count_of(index, KeyStatistics::is_over_good_only)),
            timeline: self.timeline(row),
            keys_by_demand: peaks.demand_curve(),
            peaks: peaks.windows(),
            own_peaks: peaks.own(),
            top_denied: top_denied(index, row, keys, shown),
            ..LimitReport::default()
        }
    }

    fn timeline(&self, row: &Row) -> Timeline {
        let has_in_force = row.in_force_asked > 0;
        Timeline {
            start_us: self.axis.start_s * 1_000_000,
            step_s: self.axis.step_s,
            asked: row.asked_by_minute.steps(&self.axis),
            over: row.over.steps(&self.axis),
            in_force_over: if has_in_force { row.in_force_over.steps(&self.axis) } else { Vec::new() },
        }
    }

    /// The current limit with the label of the candidate.
    fn in_force_counts(&self, index: usize) -> Option<InForceCounts> {
        let limit = self.tally.limit_in_force(self.rules, index)?;
        let row = &self.tally.rows[index];
        Some(InForceCounts {
            limit: limit.spec.requests_per_unit,
            period_s: limit.spec.period.seconds(),
            algorithm: limit.spec.algorithm.into_str().to_owned(),
            asked: row.in_force_asked,
            over: row.in_force_over.total(),
            over_share_ppm: share_ppm(row.in_force_over.total(), row.in_force_asked),
            keys_newly_over: self.tally.keys.count_of(index, KeyStatistics::is_newly_over),
            keys_freed: self.tally.keys.count_of(index, KeyStatistics::is_freed),
        })
    }
}

/// Two sentences for a person: what is denied, and whom it affects.
fn verdict(report: &Report) -> String {
    let totals = &report.totals;
    if totals.requests == 0 {
        return "No line of the log became a request. `--explain-line 1` shows what a line becomes."
            .to_owned();
    }
    let share = percent(totals.denied_share_ppm);
    let rules = match report.method.sample.one_in {
        1 => "The rules".to_owned(),
        one_in => format!("In a sample of 1/{one_in} of the keys the rules"),
    };
    let (denied, requests) = (with_commas(totals.denied), with_commas(totals.requests));
    let mut text = format!("{rules} deny {denied} of {requests} requests ({share} %)");
    if let Some(comparison) = &report.comparison {
        let share = percent(comparison.in_force_denied_share_ppm);
        text += &format!("; the current rules deny {} ({share} %)", with_commas(comparison.in_force_denied));
    }
    text += ". ";
    text += &match &report.comparison {
        Some(comparison) => {
            let (new, freed) = (with_commas(comparison.keys_newly_over), with_commas(comparison.keys_freed));
            format!("Keys newly over a limit: {new}; no longer over one: {freed}")
        }
        None => {
            format!("Keys over a limit: {} of {}", with_commas(totals.keys_denied), with_commas(totals.keys))
        }
    };
    if let (Some(denied), Some(share)) = (totals.good_denied, totals.good_denied_share_ppm) {
        text += &format!(
            "; good requests denied: {} ({} % of the good ones)",
            with_commas(denied),
            percent(share)
        );
    }
    text + "."
}
