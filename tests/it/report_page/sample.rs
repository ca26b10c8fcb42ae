//! Reports like those of a real log: some keys ask for much more than the others, traffic follows the day, and one
//! burst stands out. Numbers fit each other: the curve at the limit gives the denied requests of the rule.

use ::simulate::report::{
    Agreement, AlgorithmCounts, AlgorithmsOfLimit, BoundCheck, Comparison, ComparisonTimeline, DemandPoint,
    DeniedKey, FileDigest, InForceCounts, InputReport, KeyAlgorithmCount, KeyByAlgorithm, KeySampling,
    LimitReport, Method, PeakWindow, Percentiles, REPORT_VERSION, Recommendation, Reordering, Report,
    ShiftCount, Timeline, Totals, WhatIf, WhatIfPoint, share_ppm,
};

/// Monday, 16 November 2026, 00:00 UTC.
pub const START_US: u64 = 1_794_787_200_000_000;
const HOUR_US: u64 = 3_600_000_000;

/// One limit and the traffic of its keys.
pub struct Sample {
    pub label: &'static str,
    pub algorithm: &'static str,
    pub limit: u64,
    pub old_limit: Option<u64>,
    pub period_s: u64,
    pub keys: u64,
    /// The demand of the key that asks for most, in units per period.
    pub top: u64,
    pub steps: usize,
}

impl Sample {
    /// Falls with the rank by a power law.
    fn demand(&self, rank: u64) -> u64 {
        let units = self.top as f64 / (rank as f64).powf(0.62);
        (units as u64).max(1)
    }

    fn demands(&self) -> Vec<u64> {
        (1..=self.keys).map(|rank| self.demand(rank)).collect()
    }

    pub fn rule(&self) -> LimitReport {
        let demands = self.demands();
        let what_if = self.what_if(&demands);
        let at = |limit: u64| *what_if.points.iter().find(|point| point.limit == limit).expect("a point");
        let judged = at(self.limit);
        let asked = demands.iter().sum::<u64>() * 40;
        let timeline = self.timeline(asked, judged.denied, self.old_limit.map(|limit| at(limit).denied));
        let in_force = self.old_limit.map(|limit| InForceCounts {
            limit,
            period_s: self.period_s,
            algorithm: "fixed_window".to_owned(),
            asked,
            over: at(limit).denied,
            over_share_ppm: share_ppm(at(limit).denied, asked),
            keys_newly_over: judged.keys_over.saturating_sub(at(limit).keys_over),
            keys_freed: 0,
        });
        LimitReport {
            rule: self.label.to_owned(),
            path: format!("edge.{}", self.label),
            algorithm: self.algorithm.to_owned(),
            limit: self.limit,
            burst: if self.algorithm == "gcra" { self.limit / 4 } else { self.limit },
            period_s: self.period_s,
            is_resolved: true,
            asked,
            units: asked,
            over: judged.denied,
            over_share_ppm: share_ppm(judged.denied, asked),
            good_over: judged.good_denied,
            keys: self.keys,
            keys_over: judged.keys_over,
            keys_over_good_only: Some(judged.keys_over / 4),
            timeline,
            keys_by_demand: curve(&demands),
            peaks: [1, 10, 60, 300, 3_600, 86_400].map(|window_s| self.peaks(&demands, window_s)).into(),
            own_peaks: percentiles(&demands),
            recommendation: Some(self.recommendation(&demands)),
            top_denied: self.top_denied(&demands, in_force.as_ref()),
            in_force,
            what_if,
            ..LimitReport::default()
        }
    }

    fn what_if(&self, demands: &[u64]) -> WhatIf {
        let mut limits = vec![self.limit, self.recommendation(demands).limit, self.top];
        limits.extend(self.old_limit);
        let mut limit = 1;
        while limit < self.top {
            limits.push(limit);
            limit = (limit + 1).max(limit * 26 / 25);
        }
        limits.sort_unstable();
        limits.dedup();
        let point = |limit: u64| {
            let over = demands.iter().take_while(|units| **units > limit);
            let denied = over.clone().map(|units| (units - limit) * 2).sum();
            WhatIfPoint { limit, denied, good_denied: Some(denied / 50), keys_over: over.count() as u64 }
        };
        WhatIf { is_exact: true, points: limits.into_iter().map(point).collect(), ..WhatIf::default() }
    }

    fn recommendation(&self, demands: &[u64]) -> Recommendation {
        let needed = demands[demands.len() / 1_000];
        let unit = 10_u64.pow((needed * 12 / 10).ilog10().saturating_sub(1));
        Recommendation {
            limit: (needed * 12 / 10).div_ceil(unit) * unit,
            needed,
            needed_low: demands[demands.len() / 500],
            needed_high: Some(demands[demands.len() / 2_000]),
            max_keys_ppm: 1_000,
            max_good_denied_ppm: 100,
            headroom_percent: 120,
            ..Recommendation::default()
        }
    }

    fn peaks(&self, demands: &[u64], window_s: u64) -> PeakWindow {
        let scaled = |units: &u64| {
            let share = (window_s as f64 / self.period_s as f64).powf(0.7);
            ((*units as f64 * share) as u64).max(1)
        };
        PeakWindow { window_s, percentiles: percentiles(&demands.iter().map(scaled).collect::<Vec<_>>()) }
    }

    fn timeline(&self, asked: u64, over: u64, in_force_over: Option<u64>) -> Timeline {
        let step_s = 900;
        let by_day = |step: usize| {
            let hour = (step as u64 * step_s) as f64 / 3_600.0;
            1.2 - ((hour - 2.0) / 24.0 * std::f64::consts::TAU).cos()
        };
        let with_burst = |step: usize| {
            let burst =
                if (self.steps * 55 / 100..self.steps * 57 / 100).contains(&step) { 30.0 } else { 0.0 };
            by_day(step).powi(3) + burst
        };
        Timeline {
            start_us: START_US,
            step_s,
            asked: spread(asked, self.steps, by_day),
            over: spread(over, self.steps, with_burst),
            in_force_over: in_force_over.map_or_else(Vec::new, |over| spread(over, self.steps, with_burst)),
        }
    }

    fn top_denied(&self, demands: &[u64], in_force: Option<&InForceCounts>) -> Vec<DeniedKey> {
        let over = demands.iter().enumerate().take_while(|(_, units)| **units > self.limit).take(50);
        let key = |(rank, units): (usize, &u64)| DeniedKey {
            key: format!("{:016x}", (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            over: (units - self.limit) * 2,
            good_over: Some(units / 50),
            asked: Some(units * 40),
            units: Some(units * 40),
            in_force_over: in_force.map(|in_force| units.saturating_sub(in_force.limit) * 2),
            first_over_us: Some(START_US + HOUR_US * (rank as u64 % 30)),
            last_over_us: Some(START_US + HOUR_US * (60 + rank as u64 % 30)),
            longest_denial_us: Some(1_500_000 * (units % 90 + 1)),
            own_peak: Some(*units),
            ..DeniedKey::default()
        };
        over.map(key).collect()
    }
}

/// `sum` in `steps` parts by weight; the last part takes what rounding leaves.
fn spread(sum: u64, steps: usize, weight: impl Fn(usize) -> f64) -> Vec<u64> {
    let all: f64 = (0..steps).map(&weight).sum();
    let mut parts: Vec<u64> = (0..steps).map(|step| (sum as f64 * weight(step) / all) as u64).collect();
    let rest = sum - parts.iter().sum::<u64>();
    *parts.last_mut().expect("a step") += rest;
    parts
}

fn percentiles(descending: &[u64]) -> Percentiles {
    let at = |per_mille: usize| {
        descending[(descending.len() * (1_000 - per_mille) / 1_000).min(descending.len() - 1)]
    };
    Percentiles { p50: at(500), p90: at(900), p99: at(990), p999: at(999), max: descending[0] }
}

fn curve(descending: &[u64]) -> Vec<DemandPoint> {
    let (mut rank, mut points) = (1, Vec::new());
    while rank <= descending.len() {
        points.push(DemandPoint { rank: rank as u64, units: descending[rank - 1] });
        rank = (rank + 1).max(rank * 21 / 20);
    }
    points
}

/// Three rules over three and a half days.
pub fn samples() -> Vec<Sample> {
    let per_address = Sample {
        label: "remote_address",
        algorithm: "fixed_window",
        limit: 300,
        old_limit: Some(600),
        period_s: 60,
        keys: 9_400,
        top: 4_200,
        steps: 336,
    };
    let per_user = Sample {
        label: "api_key",
        algorithm: "gcra",
        limit: 1_000,
        old_limit: Some(1_000),
        period_s: 3_600,
        keys: 2_310,
        top: 2_600,
        steps: 336,
    };
    let exports = Sample {
        label: "path_/export.api_key",
        algorithm: "fixed_window",
        limit: 20,
        old_limit: None,
        period_s: 86_400,
        keys: 640,
        top: 19,
        steps: 336,
    };
    vec![per_address, per_user, exports]
}

/// A report with all parts.
pub fn report(samples: &[Sample]) -> Report {
    let mut rules: Vec<LimitReport> = samples.iter().map(Sample::rule).collect();
    if let Some(last) = rules.last_mut() {
        last.shadow = true;
    }
    let sum = |count: fn(&LimitReport) -> u64| rules.iter().map(count).sum::<u64>();
    let (requests, denied) = (sum(|rule| rule.asked), sum(|rule| rule.over));
    let in_force_denied = sum(|rule| rule.in_force.as_ref().map_or(0, |in_force| in_force.over));
    let good_denied = sum(|rule| rule.good_over.unwrap_or(0));
    let steps = rules[0].timeline.over.len() as u64;
    let totals = Totals {
        requests,
        denied,
        denied_share_ppm: share_ppm(denied, requests),
        without_limit: requests / 9,
        good: Some(requests * 97 / 100),
        good_denied: Some(good_denied),
        good_denied_share_ppm: Some(share_ppm(good_denied, requests * 97 / 100)),
        keys: sum(|rule| rule.keys),
        keys_denied: sum(|rule| rule.keys_over),
        first_us: START_US + 312_000,
        last_us: START_US + steps * rules[0].timeline.step_s * 1_000_000 - 1_000,
        shadow_denied: 0,
    };
    let comparison = comparison(&rules, requests, in_force_denied);
    Report {
        version: REPORT_VERSION,
        verdict: format!(
            "The new rules deny {:.2} % of requests, the current rules {:.2} %. {} keys are newly over a \
             limit, {} of them with good requests only.",
            denied as f64 * 100.0 / requests as f64,
            in_force_denied as f64 * 100.0 / requests as f64,
            comparison.keys_newly_over,
            comparison.keys_newly_over_good_only.unwrap_or(0),
        ),
        totals,
        untested_rules: vec!["edge.api_kye".to_owned()],
        algorithms: rules.iter().map(algorithms).collect(),
        worst_keys: worst_keys(&rules[0]),
        bounds: bounds(&rules[0]),
        comparison: Some(comparison),
        method: method(requests),
        limits: rules,
        ..Report::default()
    }
}

fn comparison(rules: &[LimitReport], requests: u64, in_force_denied: u64) -> Comparison {
    let both = &rules[0].timeline.in_force_over;
    let only_judged: Vec<u64> = rules[0].timeline.over.iter().zip(both).map(|(new, old)| new - old).collect();
    let only_in_force: Vec<u64> = both.iter().map(|count| count / 12).collect();
    let sum = |list: &[u64]| list.iter().sum::<u64>();
    let newly_over = rules.iter().flat_map(|rule| &rule.in_force).map(|counts| counts.keys_newly_over).sum();
    Comparison {
        both_admit: requests - sum(both) - sum(&only_judged) - sum(&only_in_force),
        only_in_force_denies: sum(&only_in_force),
        only_judged_denies: sum(&only_judged),
        both_deny: sum(both),
        in_force_denied,
        in_force_denied_share_ppm: share_ppm(in_force_denied, requests),
        good_only_judged_denies: Some(sum(&only_judged) / 50),
        keys_newly_over: newly_over,
        keys_newly_over_good_only: Some(newly_over / 4),
        keys_freed: 2,
        only_in_judged: vec!["path_/export.api_key".to_owned()],
        only_in_force: Vec::new(),
        timeline: ComparisonTimeline {
            start_us: START_US,
            step_s: rules[0].timeline.step_s,
            only_in_force_denies: only_in_force,
            only_judged_denies: only_judged,
            both_deny: both.clone(),
        },
    }
}

fn algorithms(rule: &LimitReport) -> AlgorithmsOfLimit {
    let counts = |(algorithm, burst, percent): (&str, u64, u64), is_own: bool| {
        let over_by_step: Vec<u64> = rule.timeline.over.iter().map(|over| over * percent / 100).collect();
        let over = over_by_step.iter().sum();
        AlgorithmCounts {
            label: format!("{algorithm} burst {burst}{}", if is_own { " (as configured)" } else { "" }),
            algorithm: algorithm.to_owned(),
            burst,
            is_own,
            asked: rule.asked,
            over,
            over_share_ppm: share_ppm(over, rule.asked),
            keys_over: rule.keys_over * percent / 100,
            over_by_step,
        }
    };
    let others = [
        ("fixed_window", rule.limit, 93),
        ("sliding_window", rule.limit, 109),
        ("sliding_log", rule.limit, 112),
        ("gcra", rule.limit, 104),
        ("gcra", rule.limit / 10, 131),
    ];
    let own = counts((&rule.algorithm, rule.burst, 100), true);
    let others = others.into_iter().map(|other| counts(other, false));
    AlgorithmsOfLimit { rule: rule.rule.clone(), algorithms: [own].into_iter().chain(others).collect() }
}

fn worst_keys(rule: &LimitReport) -> Vec<KeyByAlgorithm> {
    let count = |over: u64, (algorithm, percent): (&str, u64)| KeyAlgorithmCount {
        label: algorithm.to_owned(),
        algorithm: algorithm.to_owned(),
        burst: rule.burst,
        is_own: percent == 100,
        over: over * percent / 100,
    };
    let keys = rule.top_denied.iter().take(3).map(|key| KeyByAlgorithm {
        rule: rule.rule.clone(),
        key: key.key.clone(),
        asked: key.asked.unwrap_or(0),
        algorithms: [("fixed_window", 100), ("gcra", 140)].map(|algorithm| count(key.over, algorithm)).into(),
    });
    keys.collect()
}

fn bounds(rule: &LimitReport) -> Vec<BoundCheck> {
    let broken = format!("{} denies {} of {} requests", rule.rule, rule.over, rule.asked);
    vec![
        BoundCheck { bound: "--max-denied 2%".to_owned(), is_kept: true, broken_by: Vec::new() },
        BoundCheck { bound: "--max-keys-hit 10".to_owned(), is_kept: false, broken_by: vec![broken] },
    ]
}

fn method(requests: u64) -> Method {
    let command =
        "simulate --rules config/rules --compare deployed/rules --map maps/address.yaml --report report.html";
    let digest = |role: &str, name: &str, digit: &str| FileDigest {
        role: role.to_owned(),
        name: name.to_owned(),
        sha256: digit.repeat(16),
    };
    let input = |name: &str| InputReport {
        name: name.to_owned(),
        format: "envoy".to_owned(),
        is_recognized: true,
        bytes: requests * 97,
        cut: None,
    };
    Method {
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        command_line: command.split(' ').map(str::to_owned).collect(),
        inputs: vec![input("access-16.log.gz"), input("access-17.log.gz")],
        digests: vec![
            digest("rules", "config/rules/edge.yaml", "3fa9"),
            digest("compare", "deployed/rules/edge.yaml", "b07c"),
            digest("map", "maps/address.yaml", "19de"),
        ],
        lines: requests + 1_204,
        not_kept: 1_180,
        without_descriptor: 17,
        unreadable: 7,
        reordering: Reordering {
            window_us: 60_000_000,
            late: 3,
            most_late_us: 71_204_000,
            was_shortened: false,
        },
        clock_resolution_us: 1_000,
        key_sampling: KeySampling::default(),
        agreement: Some(Agreement {
            both_deny: 880,
            only_recorded: 14,
            only_simulated: 6,
            by_shift: vec![ShiftCount { shift_us: 1_000, vanished: 18, agreement_ppm: 999_999 }],
            summary: "Of 894 recorded denials 880 are reproduced.".to_owned(),
            ..Agreement::default()
        }),
        ..Method::default()
    }
}
