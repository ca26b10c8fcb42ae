//! Rule sets and algorithms side by side.

use serde::Serialize;

/// The judged rules against those in force, request by request. JSON calls them new and old.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Comparison {
    pub both_admit: u64,
    /// Requests that only the rules in force deny.
    #[serde(rename = "only_old_denies")]
    pub only_in_force_denies: u64,
    /// Requests that only the judged rules deny.
    #[serde(rename = "only_new_denies")]
    pub only_judged_denies: u64,
    pub both_deny: u64,
    /// Requests that the rules in force deny.
    #[serde(rename = "old_denied")]
    pub in_force_denied: u64,
    /// `in_force_denied` of all requests.
    #[serde(rename = "old_denied_share_ppm")]
    pub in_force_denied_share_ppm: u64,
    /// Good requests that only the judged rules deny; `None` without `good`.
    #[serde(rename = "good_only_new_denies")]
    pub good_only_judged_denies: Option<u64>,
    /// Keys that were never over a limit in force and are over the judged one of the same label, or over a new limit.
    pub keys_newly_over: u64,
    /// Keys over `keys_newly_over` whose requests over the limit were all good; `None` without `good`.
    pub keys_newly_over_good_only: Option<u64>,
    /// Keys that were over a limit in force and never are over the judged one.
    pub keys_freed: u64,
    /// Labels of limits that only the judged rules have, and that only the rules in force have.
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

/// One limit as every algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AlgorithmsOfLimit {
    /// The label of the limit.
    pub rule: String,
    /// The limit itself first, then the others.
    pub algorithms: Vec<AlgorithmCounts>,
}

/// What a limit does as one algorithm, all other limits of the rule set being of the same algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AlgorithmCounts {
    /// For a person; no other algorithm of the limit has the same.
    pub label: String,
    /// As rule files write it.
    pub algorithm: String,
    /// Units that an unused counter admits at once.
    pub burst: u64,
    /// Whether this is the limit as the rule file has it.
    pub is_own: bool,
    pub asked: u64,
    pub over: u64,
    pub over_share_ppm: u64,
    /// Keys with at least one request over the limit.
    pub keys_over: u64,
    /// Requests over the limit per step of [`Timeline`](super::Timeline).
    pub over_by_step: Vec<u64>,
}

/// One key, and its limit as each algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyByAlgorithm {
    /// The label of the limit.
    pub rule: String,
    /// As in [`DeniedKey`](super::DeniedKey).
    pub key: String,
    /// Requests of the key that met the limit.
    pub asked: u64,
    /// The limit itself first, then the others.
    pub algorithms: Vec<KeyAlgorithmCount>,
}

/// The requests of one key over a limit as one algorithm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyAlgorithmCount {
    /// As in [`AlgorithmCounts`].
    pub label: String,
    /// As rule files write it.
    pub algorithm: String,
    /// Units that an unused counter admits at once.
    pub burst: u64,
    /// Whether this is the limit as the rule file has it.
    pub is_own: bool,
    pub over: u64,
}
