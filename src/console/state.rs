//! The state of a process in the console: written by `history`, read by `ratelimitctl top`, described by
//! `docs/console-state.schema.json`. Times are seconds since the epoch, rates are per second. A field that a service
//! does not send has its default.

use serde::{Deserialize, Serialize};

use super::excepted::KeyException;
use super::live::LiveObserved;
use super::observation::RulesObserved;
use super::totals::{SECONDS, Second};

pub const SCHEMA: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ConsoleState {
    pub schema: u32,
    /// End of the last second.
    pub end: u64,
    pub instance: ConsoleInstance,
    pub series: ConsoleSeries,
    #[serde(default)]
    pub marks: Vec<Mark>,
    pub notices: Vec<Notice>,
    pub rules: ConsoleRules,
    pub keys: Vec<ConsoleKey>,
    pub store: ConsoleStore,
    #[serde(default)]
    pub exceptions: ConsoleExceptions,
    /// `None` if no exception can be set while the process runs.
    #[serde(default)]
    pub live: Option<LiveObserved>,
    #[serde(default)]
    pub unlimited: ConsoleUnlimited,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ConsoleInstance {
    pub name: String,
    /// New at each start.
    pub id: String,
    pub version: String,
    pub started_at: u64,
    /// Why the process is not ready.
    pub reasons: Vec<String>,
    pub dashboard_url: Option<String>,
    /// What a caller must send to see the values of keys.
    pub values: String,
    /// Such as `3 instances, all with these rules`; empty if unknown.
    pub fleet: String,
}

/// One value for each of the last seconds, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub struct ConsoleSeries {
    pub requests: Vec<u64>,
    pub denied: Vec<u64>,
    pub failed: Vec<u64>,
    pub policy: Vec<u64>,
    pub shadow: Vec<u64>,
    pub p50_us: Vec<Option<u64>>,
    pub p99_us: Vec<Option<u64>>,
    pub store_p99_us: Vec<Option<u64>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ConsoleRules {
    pub total: usize,
    /// Limits unused for 15 minutes.
    pub idle: usize,
    #[serde(flatten)]
    pub observed: RulesObserved,
    pub list: Vec<ConsoleRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ConsoleRule {
    pub id: u32,
    #[serde(flatten)]
    pub shown: RuleName,
    /// The first rule's path below its domain, and its limit's name, as written in exceptions.
    pub path: Option<String>,
    pub name: String,
    pub how: String,
    pub asked: f64,
    pub denied: f64,
    pub asked_15m: u64,
    pub denied_15m: u64,
    pub since: Option<u64>,
    pub keys: usize,
    pub more_keys: bool,
    /// Counts per step of ten seconds.
    pub spark_asked: Vec<u32>,
    pub spark: Vec<u32>,
}

/// Identifies a row of rules. Rules of two instances share a row if all fields are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(default)]
pub struct RuleName {
    pub domain: String,
    /// Label of the limit.
    pub rule: String,
    /// Such as `600 per minute`.
    pub limit: String,
    /// `enforced`, `shadow`, `quota` or `override`.
    pub kind: String,
}

/// Severity of a mark or a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Callers are affected now, or the process is not ready.
    Bad,
    /// Someone should look within a day.
    Warn,
    /// It is over, or not a fault.
    #[serde(rename = "")]
    Plain,
}

/// Times are seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Mark {
    pub(super) at: u64,
    /// End of a span.
    pub(super) until: Option<u64>,
    pub(super) level: Level,
    pub(super) text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Notice {
    pub level: Level,
    pub title: String,
    pub text: String,
    pub fix: String,
}

/// Names of entries, and what is shown of their values.
pub type ShownEntries = Vec<(String, String)>;

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ConsoleKey {
    pub id: String,
    pub rule: u32,
    /// The limit, if the rule has several.
    pub limit: Option<String>,
    pub entries: ShownEntries,
    /// `true` if any value is secret.
    pub secret: bool,
    pub exception: Option<KeyException>,
    pub denied: f64,
    pub denied_15m: u64,
    pub spark: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ConsoleStore {
    /// `memory` or `redis`.
    pub kind: String,
    pub answers: bool,
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
    pub queue: u64,
    /// Mean requests per batch.
    pub batch: Option<f64>,
    pub breakers: usize,
    pub breakers_open: usize,
    pub deny_hits: f64,
    pub deny_keys: u64,
    pub server: Option<String>,
    pub last_outage: Option<ConsoleOutage>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ConsoleOutage {
    pub at: u64,
    pub seconds: u64,
    pub error: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ConsoleExceptions {
    pub block: RowsOfKind,
    pub exempt: RowsOfKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct RowsOfKind {
    pub rows: u64,
    /// Requests that they changed in 15 minutes.
    pub requests_15m: u64,
}

/// Requests that no limit stops.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct ConsoleUnlimited {
    pub without_limit: f64,
    /// Shapes of requests without a limit, with their rates.
    pub names: Vec<(String, f64)>,
    pub unknown_domain: f64,
    pub domains: Vec<String>,
    /// Requests admitted by a failure policy.
    pub allowed: f64,
    pub shadow_mode: bool,
    pub evictions: u64,
}

/// The newest second, and the rows that changed in it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ConsoleSample {
    pub end: u64,
    pub(crate) sample: Second,
    /// Id, decisions, denials, denials in 15 minutes.
    pub rules: Vec<(u32, f64, f64, u64)>,
    /// Id, denials, denials in 15 minutes.
    pub keys: Vec<(String, f64, u64)>,
    #[serde(default)]
    pub marks: Vec<Mark>,
    pub reasons: Vec<String>,
    #[serde(default)]
    pub fleet: String,
    #[serde(default)]
    pub live: Option<LiveObserved>,
}

impl ConsoleState {
    /// Adds a sample. Seconds that the stream left out count 0 until the next state.
    pub fn add(&mut self, sample: ConsoleSample) {
        let ConsoleSample { end, sample, rules, keys, marks: _, reasons, fleet, live } = sample;
        let missed = end.saturating_sub(self.end.saturating_add(1)).min(SECONDS as u64);
        for _ in 0..missed {
            self.series.push(Second::default());
        }
        self.series.push(sample);
        (self.end, self.live) = (end, live);
        (self.instance.reasons, self.instance.fleet) = (reasons, fleet);
        for (id, asked, denied, denied_15m) in rules {
            if let Some(rule) = self.rules.list.iter_mut().find(|rule| rule.id == id) {
                (rule.asked, rule.denied, rule.denied_15m) = (asked, denied, denied_15m);
            }
        }
        for (id, denied, denied_15m) in keys {
            if let Some(key) = self.keys.iter_mut().find(|key| key.id == id) {
                (key.denied, key.denied_15m) = (denied, denied_15m);
            }
        }
    }
}

impl ConsoleSeries {
    /// Adds the newest second.
    pub(super) fn push(&mut self, second: Second) {
        push(&mut self.requests, second.requests);
        push(&mut self.denied, second.denied);
        push(&mut self.failed, second.failed);
        push(&mut self.policy, second.policy);
        push(&mut self.shadow, second.shadow);
        push(&mut self.p50_us, second.p50_us);
        push(&mut self.p99_us, second.p99_us);
        push(&mut self.store_p99_us, second.store_p99_us);
    }
}

fn push<T>(series: &mut Vec<T>, newest: T) {
    if series.len() >= SECONDS {
        series.drain(..=series.len() - SECONDS);
    }
    series.push(newest);
}

impl RowsOfKind {
    /// Adds the exceptions of another instance, which has the same files.
    pub fn add(&mut self, other: Self) {
        self.rows = self.rows.max(other.rows);
        self.requests_15m = self.requests_15m.saturating_add(other.requests_15m);
    }
}
