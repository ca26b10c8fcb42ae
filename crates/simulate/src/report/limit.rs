//! What one limit did. JSON and the page speak of rules, as their readers do.

use serde::Serialize;

/// One limit of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LimitReport {
    /// The label of the limit: its name, or the path of its rule. The same as the label `rule` of the metrics.
    pub rule: String,
    /// The path of the rule, `domain.key_value.key`; `override` for limits that came with requests.
    pub path: String,
    /// As the rule file writes it.
    pub algorithm: String,
    /// Units per period.
    pub limit: u64,
    /// Units that an unused counter admits at once.
    pub burst: u64,
    pub period_s: u64,
    /// The calendar whose days, weeks, months or years are the windows, such as `Europe/Berlin/month/15`. `period_s` is
    /// then only the length of a usual one.
    pub calendar: Option<String>,
    /// Whether the rule has `shadow_mode`: its denials deny nothing.
    pub shadow: bool,
    /// Whether the limit has `on_over: announce`: it denies nothing, and `over` counts what it would announce.
    pub announces: bool,
    /// The units that a check takes of a limit with `reserve`; `None` without `reserve`. The simulation takes the whole
    /// cost of a request at once.
    pub reserve: Option<u64>,
    /// Whether the period has at least ten ticks of the log's clock. The counts of other limits must not be trusted.
    pub is_resolved: bool,
    /// Whether the requests of one counter were partly left out by `--sample`, because it is not of the sampled key.
    /// The limit was then decided as `1/method.sample.one_in` of it, and its numbers are rough estimates.
    pub is_thinned: bool,
    /// Requests that met the limit.
    pub asked: u64,
    /// Units that these requests asked for.
    pub units: u64,
    /// Requests over the limit.
    pub over: u64,
    /// `over` of `asked`.
    pub over_share_ppm: u64,
    /// Good requests over the limit; `None` without `good` in the map.
    pub good_over: Option<u64>,
    /// Different keys (counters) that met the limit. An estimate if `method.key_sampling.level` is not 0, as all counts
    /// of keys.
    pub keys: u64,
    /// Keys with at least one request over the limit.
    pub keys_over: u64,
    /// Keys over the limit whose requests over it were all good: users, rather than an attacker. `None` without `good`.
    pub keys_over_good_only: Option<u64>,
    /// With `--compare` and a limit of the same label in force: its counts.
    #[serde(rename = "old")]
    pub in_force: Option<InForceCounts>,
    pub timeline: Timeline,
    /// Keys by demand, descending: points of the curve at ranks that grow by about a twentieth. Demand is the most
    /// units of the key in one window of the limit's own period, windows aligned to the epoch.
    pub keys_by_demand: Vec<DemandPoint>,
    /// Percentiles of the keys' peaks in windows of 1 s, 10 s, 1 min, 5 min, 1 h and 1 d, in this order.
    pub peaks: Vec<PeakWindow>,
    /// Percentiles of the keys' peaks in windows of the limit's own period, or of its calendar.
    pub own_peaks: Percentiles,
    pub what_if: WhatIf,
    /// With `--recommend`.
    pub recommendation: Option<Recommendation>,
    /// The keys with most requests over the limit, at most 50, descending.
    pub top_denied: Vec<DeniedKey>,
}

impl LimitReport {
    /// Units per period of the limit in force, if it has the same period.
    pub(crate) fn units_in_force(&self) -> Option<u64> {
        let in_force = self.in_force.as_ref().filter(|in_force| in_force.period_s == self.period_s)?;
        Some(in_force.limit)
    }
}

/// A limit with the same label in the rules in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct InForceCounts {
    /// Units per period.
    pub limit: u64,
    pub period_s: u64,
    pub algorithm: String,
    pub asked: u64,
    pub over: u64,
    pub over_share_ppm: u64,
    /// Keys over the judged limit that were never over the limit in force.
    pub keys_newly_over: u64,
    /// Keys that were over the limit in force and never are over the judged one.
    pub keys_freed: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Timeline {
    /// The start of the first step, a multiple of `step_s`.
    pub start_us: u64,
    /// 60, unless this would be more than 1,500 steps: then 300, 900, 3,600 or 86,400.
    pub step_s: u64,
    /// Requests that met the limit, per step. All lists have the same length, and all limits the same steps.
    pub asked: Vec<u64>,
    /// Requests over the judged limit, per step.
    pub over: Vec<u64>,
    /// Requests over the limit in force, per step; empty without one.
    #[serde(rename = "old_over")]
    pub in_force_over: Vec<u64>,
}

/// One point of the curve of keys by demand.
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

/// What other limits would do: the slider of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WhatIf {
    /// Whether the points are those that the whole rule set would have: no other limit was over in the requests of this
    /// one, all keys were counted, and no counter was evicted; for a fixed window also every request asked for one
    /// unit.
    pub is_exact: bool,
    /// The burst that the rule file writes: all points have it. `None` if the burst of each point is its limit, or the
    /// algorithm has none.
    pub held_burst: Option<u32>,
    /// By rising limit, each decided by the algorithm of the limit, without the other limits. The limit itself, the
    /// limit in force of the same period and the recommendation are points. A fixed window has a point every 4 %, and
    /// the last one denies nothing; for a limit between two points, `denied` and `keys_over` lie between those of the
    /// points. Other algorithms have up to 17 points, from an eighth of the limit to 32 times the limit, with
    /// `--recommend` or `--report`; else they have none. Empty for a limit that is not by the key of `--sample`.
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

/// The smallest point of the curve ([`WhatIf`]) that would touch few keys and few good requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recommendation {
    /// Why there is no recommendation, such as too few keys; then the numbers are 0.
    pub no_recommendation: Option<String>,
    /// `needed` with head-room, rounded up: to two digits for a fixed window, else to the next point.
    pub limit: u64,
    /// The smallest limit within both bounds.
    pub needed: u64,
    /// The interval in which `needed` lies with 95 % certainty if other traffic has the same distribution of keys: the
    /// order statistics around the quantile. `needed_high` is `None` above the last point.
    pub needed_low: u64,
    pub needed_high: Option<u64>,
    /// The bounds: keys that may be over the limit, and good requests (all requests without `good`) that may be denied.
    pub max_keys_ppm: u64,
    pub max_good_denied_ppm: u64,
    /// The head-room in percent: 120 is a fifth more than needed.
    pub headroom_percent: u64,
}

/// A key with requests over the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeniedKey {
    /// The first 16 hexadecimal digits of the SHA-256 of the counter's key without its fingerprint; with `--show-keys`
    /// the key itself, such as `{edge|remote_address=192.0.2.7}`.
    pub key: String,
    /// Requests over the limit. If `error` is not 0, at most this many fewer.
    pub over: u64,
    /// 0 unless more keys than the table holds were over the limit.
    pub error: u64,
    /// Good requests of them; `None` without `good`, and for a key that the sample of keys does not hold.
    pub good_over: Option<u64>,
    /// Requests and units of the key; `None` for a key that the sample of keys does not hold, as all that follow.
    pub asked: Option<u64>,
    pub units: Option<u64>,
    /// With `--compare`: requests over the limit in force.
    #[serde(rename = "old_over")]
    pub in_force_over: Option<u64>,
    /// The times of the first and last request over the limit.
    pub first_over_us: Option<u64>,
    pub last_over_us: Option<u64>,
    /// The longest time from a request over the limit to the next request of the key that was not.
    pub longest_denial_us: Option<u64>,
    /// The most units in one window of the limit's own period.
    pub own_peak: Option<u64>,
    /// The smallest point of [`WhatIf`] that the key never exceeds; `None` if it exceeds all, and for a fixed window,
    /// where it is `own_peak`.
    pub kept_limit: Option<u64>,
}
