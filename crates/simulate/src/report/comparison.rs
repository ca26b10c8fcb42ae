//! Compares rule sets and algorithms.

use serde::Serialize;

/// The candidate rules against the current ones, request by request. JSON calls them new and old.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    pub both_admit: u64,
    #[serde(rename = "only_old_denies")]
    pub only_in_force_denies: u64,
    #[serde(rename = "only_new_denies")]
    pub only_judged_denies: u64,
    pub both_deny: u64,
    #[serde(rename = "old_denied")]
    pub in_force_denied: u64,
    /// `in_force_denied` of all requests.
    #[serde(rename = "old_denied_share_ppm")]
    pub in_force_denied_share_ppm: u64,
    /// Good requests that only the candidate rules deny; `None` without `good`.
    #[serde(rename = "good_only_new_denies")]
    pub good_only_judged_denies: Option<u64>,
    /// Keys never over a current limit that are over the candidate of the same label, or over a new limit.
    pub keys_newly_over: u64,
    /// Keys of `keys_newly_over` whose requests over the limit were all good; `None` without `good`.
    pub keys_newly_over_good_only: Option<u64>,
    /// Keys over a current limit that are never over the candidate.
    pub keys_freed: u64,
    /// Labels of limits that only the candidate rules have, and that only the current rules have.
    #[serde(rename = "only_in_new")]
    pub only_in_judged: Vec<String>,
    #[serde(rename = "only_in_old")]
    pub only_in_force: Vec<String>,
    pub timeline: ComparisonTimeline,
}

/// Denied requests over time; the steps are those of [`Timeline`](super::Timeline).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ComparisonTimeline {
    pub start_us: u64,
    pub step_s: u64,
    #[serde(rename = "only_old_denies")]
    pub only_in_force_denies: Vec<u64>,
    #[serde(rename = "only_new_denies")]
    pub only_judged_denies: Vec<u64>,
    pub both_deny: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AlgorithmsOfLimit {
    /// The label of the limit.
    pub rule: String,
    /// The limit itself first, then the others.
    pub algorithms: Vec<AlgorithmCounts>,
}

/// The effect of a limit as one algorithm, if all other limits of the rule set also use that algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AlgorithmCounts {
    /// For a person; unique among the limit's algorithms.
    pub label: String,
    /// As in rule files.
    pub algorithm: String,
    /// Units that an unused counter admits at one instant.
    pub burst: u64,
    /// `true` for the limit as the rule file has it.
    pub is_own: bool,
    pub asked: u64,
    pub over: u64,
    pub over_share_ppm: u64,
    /// Keys with at least one request over the limit.
    pub keys_over: u64,
    /// Requests over the limit per step of [`Timeline`](super::Timeline).
    pub over_by_step: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyByAlgorithm {
    /// The label of the limit.
    pub rule: String,
    /// As in [`DeniedKey`](super::DeniedKey).
    pub key: String,
    /// Requests of the key to which the limit applied.
    pub asked: u64,
    /// The limit itself first, then the others.
    pub algorithms: Vec<KeyAlgorithmCount>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyAlgorithmCount {
    /// As in [`AlgorithmCounts`].
    pub label: String,
    /// As in rule files.
    pub algorithm: String,
    /// Units that an unused counter admits at one instant.
    pub burst: u64,
    /// `true` for the limit as the rule file has it.
    pub is_own: bool,
    pub over: u64,
}
