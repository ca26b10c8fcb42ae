//! What the console is told once a second.

use std::sync::Arc;

use engine::RuleSet;
use serde::{Deserialize, Serialize};

use crate::telemetry::metrics::{CountedKeys, LimitsInForce, MetricsSample};

/// The state of the process at the end of a second.
#[derive(Debug)]
pub struct Observation {
    /// The end of the second, in seconds since the epoch.
    pub end: u64,
    /// Seconds since the observation before, at least 1.
    pub seconds: u64,
    pub metrics: MetricsSample,
    pub limits: LimitsInForce,
    /// What the workers have counted since the observation before.
    pub denied: Vec<CountedKeys>,
    pub rule_set: Arc<RuleSet>,
    pub rules: RulesObserved,
    pub store: StoreObserved,
    pub service: ServiceObserved,
}

/// The rules in force. Times are seconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RulesObserved {
    /// The number of rules that came into force since the start; 0 without rules.
    pub generation: u64,
    pub loaded_at: u64,
    pub files: usize,
    pub domains: usize,
    pub warnings: usize,
    /// Newer rules that cannot be used.
    pub rejected: Option<RejectedRules>,
    /// Whether a stream to the xDS server is open; `None` for rules from files.
    #[serde(skip)]
    pub xds_connected: Option<bool>,
}

/// Rules that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RejectedRules {
    pub at: u64,
    pub problems: Vec<String>,
}

/// The store of counters.
#[derive(Clone, Debug, Default)]
pub struct StoreObserved {
    /// Its kind in the settings.
    pub kind: &'static str,
    /// False for Redis before its first answer and in an outage.
    pub answers: bool,
    pub breakers: usize,
    pub breakers_open: usize,
    /// Requests that the deny cache has denied so far.
    pub deny_hits: u64,
    pub deny_keys: u64,
    /// Counters that were evicted from memory so far.
    pub evictions: u64,
    /// Program, version and topology; `None` before the first answer.
    pub server: Option<String>,
    pub last_outage: Option<LastOutage>,
}

/// An outage of Redis that lasts, or the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastOutage {
    pub at: u64,
    pub error: String,
    pub is_over: bool,
}

/// The rest of the process.
#[derive(Clone, Debug, Default)]
pub struct ServiceObserved {
    /// Why it is not ready; empty if it is.
    pub reasons: Vec<String>,
    pub is_draining: bool,
    pub certificates: Vec<Certificate>,
}

/// A certificate in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub port: &'static str,
    /// Seconds since the epoch.
    pub expires_at: i64,
}
