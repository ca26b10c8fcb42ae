//! The report of a simulation: the contract between the pass, the terminal, the page and `--report-json`.
//!
//! Numbers are integers with the unit in their name; times are microseconds since the epoch, shares are parts per
//! million, rounded down. docs/simulate-report.schema.json describes the JSON; `serde(rename)` keeps its names stable.

mod comparison;
mod limit;
mod method;

use serde::Serialize;

pub use comparison::{
    AlgorithmCounts, AlgorithmsOfLimit, Comparison, ComparisonTimeline, KeyAlgorithmCount, KeyByAlgorithm,
};
pub use limit::{
    DemandPoint, DeniedKey, InForceCounts, LimitReport, PeakWindow, Percentiles, Recommendation, Timeline,
    WhatIf, WhatIfPoint,
};
pub use method::{
    Agreement, BoundCheck, FileDigest, InputReport, KeySampling, Method, Reordering, RequestSample,
    ShiftCount, UnreadableLine,
};

/// The version of the JSON. It grows if a field changes its meaning or is removed; a new field does not change it.
pub const REPORT_VERSION: u32 = 1;

/// What a rule set would have done to the requests of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// `true` if the log was not read to its end, because the pass was interrupted.
    pub partial: bool,
    /// Two sentences for a person: what is denied, and whom it affects.
    pub verdict: String,
    pub totals: Totals,
    /// One for each limit of the candidate rules that applied to a request, in the order of the rule files. Overrides
    /// are the last one, `override`.
    #[serde(rename = "rules")]
    pub limits: Vec<LimitReport>,
    /// The paths of untested rules, in the order of the rule files: they have a limit, but applied to no request. A
    /// typo in a rule file or a map looks like that.
    #[serde(rename = "unmet_rules")]
    pub untested_rules: Vec<String>,
    /// Why the log does not test these rules, one sentence each: the log has no requests, or the map sends another
    /// domain or no such descriptor. With `--max-good-denied` also that no request is good.
    #[serde(rename = "untested")]
    pub untested_reasons: Vec<String>,
    /// With `--compare`: the candidate rules against the current ones.
    pub comparison: Option<Comparison>,
    /// With `--algorithms`: each limit as every algorithm, in the order of `limits`; else empty.
    pub algorithms: Vec<AlgorithmsOfLimit>,
    /// With `--algorithms`: the three keys of all limits that are over their limit most often, as every algorithm; else
    /// empty. Limited to the sample of keys if [`KeySampling::level`] is not 0.
    pub worst_keys: Vec<KeyByAlgorithm>,
    /// The requested bounds (`--max-denied` and so on) with their results.
    pub bounds: Vec<BoundCheck>,
    pub method: Method,
}

/// Counts over all requests and rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Requests decided.
    pub requests: u64,
    /// Requests that the candidate rules deny.
    pub denied: u64,
    /// `denied` of `requests`.
    pub denied_share_ppm: u64,
    /// Requests that only shadow rules and announced limits would deny.
    pub shadow_denied: u64,
    /// Requests to which no limit applied.
    pub without_limit: u64,
    /// Requests for which the map's `good` holds; `None` without `good`.
    pub good: Option<u64>,
    /// Good requests that are denied: false positives. `None` without `good`.
    pub good_denied: Option<u64>,
    /// `good_denied` of `good`.
    pub good_denied_share_ppm: Option<u64>,
    /// Pairs of a limit and a key with at least one request. An estimate if [`KeySampling::level`] is not 0.
    pub keys: u64,
    /// Pairs of a limit and a key with at least one request over the limit; an estimate like `keys`.
    pub keys_denied: u64,
    /// The time of the first request decided; 0 without requests.
    pub first_us: u64,
    /// The time of the last request decided; 0 without requests.
    pub last_us: u64,
}

/// `part` of `whole` in parts per million, rounded down; 0 if `whole` is 0.
pub fn share_ppm(part: u64, whole: u64) -> u64 {
    let ppm = u128::from(part) * 1_000_000 / u128::from(whole.max(1));
    u64::try_from(ppm).unwrap_or(u64::MAX)
}

/// A share as percent with up to four decimals: `0.42`.
pub fn percent(ppm: u64) -> String {
    let text = format!("{}.{:04}", ppm / 10_000, ppm % 10_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_shown_in_percent() {
        let table =
            [(0, "0"), (4_200, "0.42"), (1, "0.0001"), (1_000_000, "100"), (10_000, "1"), (100_500, "10.05")];
        for (ppm, text) in table {
            assert_eq!(percent(ppm), text);
        }
        assert_eq!(
            (share_ppm(1, 3), share_ppm(0, 0), share_ppm(u64::MAX, u64::MAX)),
            (333_333, 0, 1_000_000)
        );
    }
}
