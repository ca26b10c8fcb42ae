//! Input of the console, once a second.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{LimitId, RuleSet};
use serde::{Deserialize, Serialize};
use store::leases::BorrowedUnits;

use super::live::LiveObserved;
use crate::telemetry::metrics::{CountedKeys, LimitsInForce, MetricsSample};

/// The process's state at the end of a second.
#[derive(Debug)]
pub struct Observation {
    /// End of the second, seconds since the epoch.
    pub end: u64,
    /// Seconds since the last observation, at least 1.
    pub seconds: u64,
    pub metrics: MetricsSample,
    pub limits: LimitsInForce,
    /// What the workers have counted since the last observation.
    pub denied: Vec<CountedKeys>,
    pub rule_set: Arc<RuleSet>,
    pub rules: RulesObserved,
    pub store: StoreObserved,
    pub service: ServiceObserved,
    /// `None` if no exception can be set while the process runs.
    pub live: Option<LiveObserved>,
}

/// The current rules. Times are seconds since the epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct RulesObserved {
    /// Rule sets applied since startup; 0 without rules.
    pub generation: u64,
    pub loaded_at: u64,
    pub files: usize,
    pub domains: usize,
    pub warnings: usize,
    /// Newer rules that are invalid.
    pub rejected: Option<RejectedRules>,
    /// `true` if a stream to the xDS server is open; `None` for rules from files.
    #[serde(skip)]
    pub xds_connected: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct RejectedRules {
    pub at: u64,
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub struct StoreObserved {
    /// Kind in the settings.
    pub kind: &'static str,
    /// `false` for Redis before its first answer and in an outage.
    pub answers: bool,
    pub breakers: usize,
    pub breakers_open: usize,
    /// Requests denied by the deny cache so far.
    pub deny_hits: u64,
    pub deny_keys: u64,
    /// What this process borrowed of each limit.
    pub leases: HashMap<LimitId, BorrowedUnits>,
    /// Counters evicted from memory so far.
    pub evictions: u64,
    /// Program, version and topology; `None` before the first answer.
    pub server: Option<String>,
    pub last_outage: Option<LastOutage>,
}

/// The current outage of Redis, or the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastOutage {
    pub at: u64,
    pub error: String,
    pub is_over: bool,
}

#[derive(Clone, Debug, Default)]
pub struct ServiceObserved {
    /// Why it is not ready; empty if it is.
    pub reasons: Vec<String>,
    pub is_draining: bool,
    /// How many instances are live, and which use other rules; empty if unknown.
    pub fleet: String,
    pub certificates: Vec<Certificate>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    pub port: &'static str,
    /// Seconds since the epoch.
    pub expires_at: i64,
}
