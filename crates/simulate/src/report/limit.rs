//! The effect of one limit. JSON and the page call a limit a rule.

use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitReport {
    /// The label of the limit: its name, or the path of its rule. Equals the label `rule` of metrics.
    pub rule: String,
    /// The path of the rule, `domain.key_value.key`; `override` for overrides.
    pub path: String,
    /// As in rule files.
    pub algorithm: String,
    /// Units per period.
    pub limit: u64,
    /// Units that an unused counter admits at one instant.
    pub burst: u64,
    pub period_s: u64,
    /// The calendar whose days, weeks, months or years are the windows, such as `Europe/Berlin/month/15`. `period_s` is
    /// then only the length of a usual one.
    pub calendar: Option<String>,
    /// `true` if the rule has `shadow_mode`: its denials do not take effect.
    pub shadow: bool,
    /// `true` if the limit has `on_over: announce`: it denies nothing, and `over` counts what it would announce.
    pub announces: bool,
    /// Units that a check takes of a limit with `reserve`; `None` without `reserve`. The simulation takes the whole
    /// cost of a request in one step.
    pub reserve: Option<u64>,
    /// `true` if the period has at least ten ticks of the log's clock. Otherwise the limit's counts are unreliable.
    pub is_resolved: bool,
    /// `true` if `--sample` left out part of a counter's requests, because the counter does not have the sampled key.
    /// The limit was then decided as `1/method.sample.one_in` of itself, and its counts are rough estimates.
    pub is_thinned: bool,
    /// Requests to which the limit applied.
    pub asked: u64,
    /// Units of these requests.
    pub units: u64,
    /// Requests over the limit.
    pub over: u64,
    /// `over` of `asked`.
    pub over_share_ppm: u64,
    /// Good requests over the limit; `None` without `good` in the map.
    pub good_over: Option<u64>,
    /// Distinct keys (counters) to which the limit applied. An estimate if `method.key_sampling.level` is not 0, like
    /// all counts of keys.
    pub keys: u64,
    /// Keys with at least one request over the limit.
    pub keys_over: u64,
    /// Keys over the limit whose requests over it were all good: users, rather than an attacker. `None` without `good`.
    pub keys_over_good_only: Option<u64>,
    /// With `--compare` and a current limit of the same label: its counts.
    #[serde(rename = "old")]
    pub in_force: Option<InForceCounts>,
    pub timeline: Timeline,
    /// Keys by demand, descending: points of the curve at ranks that grow by about a twentieth. Demand is the most
    /// units of the key in one epoch-aligned window of the limit's own period.
    pub keys_by_demand: Vec<DemandPoint>,
    /// Percentiles of the keys' peaks in windows of 1 s, 10 s, 1 min, 5 min, 1 h and 1 d, in this order.
    pub peaks: Vec<PeakWindow>,
    /// Percentiles of the keys' peaks in windows of the limit's own period, or of its calendar.
    pub own_peaks: Percentiles,
    pub what_if: WhatIf,
    /// With `--recommend`.
    pub recommendation: Option<Recommendation>,
    /// The keys with the most requests over the limit, at most 50, descending.
    pub top_denied: Vec<DeniedKey>,
}

impl LimitReport {
    /// Units per period of the current limit, if it has the same period.
    pub(crate) fn units_in_force(&self) -> Option<u64> {
        let in_force = self.in_force.as_ref().filter(|in_force| in_force.period_s == self.period_s)?;
        Some(in_force.limit)
    }
}

/// The current limit with the same label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InForceCounts {
    /// Units per period.
    pub limit: u64,
    pub period_s: u64,
    pub algorithm: String,
    pub asked: u64,
    pub over: u64,
    pub over_share_ppm: u64,
    /// Keys over the candidate limit that were never over the current one.
    pub keys_newly_over: u64,
    /// Keys over the current limit that are never over the candidate.
    pub keys_freed: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// The start of the first step, a multiple of `step_s`.
    pub start_us: u64,
    /// 60, or if this would be more than 1,500 steps: 300, 900, 3,600 or 86,400.
    pub step_s: u64,
    /// Requests to which the limit applied, per step. All lists have the same length, and all limits the same steps.
    pub asked: Vec<u64>,
    /// Requests over the candidate limit, per step.
    pub over: Vec<u64>,
    /// Requests over the current limit, per step; empty without one.
    #[serde(rename = "old_over")]
    pub in_force_over: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DemandPoint {
    /// From 1; an estimate if keys are sampled.
    pub rank: u64,
    /// The demand of the key at this rank.
    pub units: u64,
}

/// The keys' peaks in windows of one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeakWindow {
    pub window_s: u64,
    #[serde(flatten)]
    pub percentiles: Percentiles,
}

/// Percentiles over keys, in units: the smallest value that at least this share of keys does not exceed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    /// 99.9 %.
    pub p999: u64,
    pub max: u64,
}

/// The effect of other limits: the slider of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WhatIf {
    /// `true` if the points equal those of the whole rule set: no other limit was over in this limit's requests, all
    /// keys were counted, no counter was evicted, and for a fixed window every request cost one unit.
    pub is_exact: bool,
    /// The explicit burst of the rule file, which all points have. `None` if the burst of each point is its limit, or
    /// the algorithm has none.
    pub held_burst: Option<u32>,
    /// In ascending order, each decided by the algorithm of the limit, regardless of the other limits. The limit
    /// itself, the current limit of the same period and the recommendation are points. A fixed window has a point every
    /// 4 %, and the last one denies nothing; between two points, `denied` and `keys_over` lie between theirs. Other
    /// algorithms have up to 17 points, from an eighth of the limit to 32 times the limit, but only with `--recommend`
    /// or `--report`. Empty for a limit that does not have the key of `--sample`.
    pub points: Vec<WhatIfPoint>,
}

/// The effect of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WhatIfPoint {
    pub limit: u64,
    /// Requests that would be over it.
    pub denied: u64,
    /// Good requests that would be over it; `None` without `good`.
    pub good_denied: Option<u64>,
    /// Keys that would be over it at least once.
    pub keys_over: u64,
}

/// The smallest point of the curve ([`WhatIf`]) that would affect few keys and few good requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recommendation {
    /// Why there is no recommendation, such as too few keys; the numbers are then 0.
    pub no_recommendation: Option<String>,
    /// `needed` with headroom, rounded up: to two digits for a fixed window, else to the next point.
    pub limit: u64,
    /// The smallest limit within both bounds.
    pub needed: u64,
    /// The 95 % confidence interval of `needed` for other traffic with the same distribution of keys: the order
    /// statistics around the quantile. `needed_high` is `None` above the last point.
    pub needed_low: u64,
    pub needed_high: Option<u64>,
    /// The bounds: keys that may be over the limit, and good requests (all requests without `good`) that may be denied.
    pub max_keys_ppm: u64,
    pub max_good_denied_ppm: u64,
    /// Headroom in percent: 120 is a fifth more than needed.
    pub headroom_percent: u64,
}

/// A key with requests over the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeniedKey {
    /// The first 16 hexadecimal digits of the SHA-256 of the counter key without its fingerprint; with `--show-keys`
    /// the key itself, such as `{edge|remote_address=192.0.2.7}`.
    pub key: String,
    /// Requests over the limit; the true count may be lower by up to `error`.
    pub over: u64,
    /// 0 unless more keys than the table holds were over the limit.
    pub error: u64,
    /// How many of them are good; `None` without `good`, and for a key outside the sample of keys.
    pub good_over: Option<u64>,
    /// Requests and units of the key; `None` for a key outside the sample of keys, like all that follow.
    pub asked: Option<u64>,
    pub units: Option<u64>,
    /// With `--compare`: requests over the current limit.
    #[serde(rename = "old_over")]
    pub in_force_over: Option<u64>,
    /// The times of the first and last request over the limit.
    pub first_over_us: Option<u64>,
    pub last_over_us: Option<u64>,
    /// The longest time from a request over the limit to the key's next request that was not.
    pub longest_denial_us: Option<u64>,
    /// The most units in one window of the limit's own period.
    pub own_peak: Option<u64>,
    /// The smallest point of [`WhatIf`] that the key never exceeds; `None` if it exceeds all, and for a fixed window,
    /// for which it is `own_peak`.
    pub kept_limit: Option<u64>,
}
