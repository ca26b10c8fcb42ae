//! What the console says of a process: written by `history`, read by `ratelimitd top`, described by
//! `docs/console-state.schema.json`.
//!
//! Times are seconds since the epoch, rates are per second. A field that a service does not send has its default.

use serde::{Deserialize, Serialize};

use super::excepted::KeyException;
use super::observation::RulesObserved;
use super::totals::{SECONDS, Second};

/// The version of the format.
pub(crate) const SCHEMA: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct ConsoleState {
    pub(crate) schema: u32,
    /// The end of the last second.
    pub(crate) end: u64,
    pub(crate) instance: ConsoleInstance,
    pub(crate) series: ConsoleSeries,
    #[serde(default)]
    pub(crate) marks: Vec<Mark>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) rules: ConsoleRules,
    pub(crate) keys: Vec<ConsoleKey>,
    pub(crate) store: ConsoleStore,
    #[serde(default)]
    pub(crate) exceptions: ConsoleExceptions,
    #[serde(default)]
    pub(crate) unlimited: ConsoleUnlimited,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ConsoleInstance {
    pub(crate) name: String,
    /// Another one at each start.
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) started_at: u64,
    /// Why the process is not ready.
    pub(crate) reasons: Vec<String>,
    pub(crate) dashboard_url: Option<String>,
    pub(crate) exceptions_path: Option<String>,
    /// What a caller must present to see the values of keys.
    pub(crate) values: String,
}

/// A number for each of the last seconds, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ConsoleSeries {
    pub(crate) requests: Vec<u64>,
    pub(crate) denied: Vec<u64>,
    pub(crate) failed: Vec<u64>,
    pub(crate) policy: Vec<u64>,
    pub(crate) shadow: Vec<u64>,
    pub(crate) p50_us: Vec<Option<u64>>,
    pub(crate) p99_us: Vec<Option<u64>>,
    pub(crate) store_p99_us: Vec<Option<u64>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ConsoleRules {
    pub(crate) total: usize,
    /// Limits that were not asked in 15 minutes.
    pub(crate) idle: usize,
    #[serde(flatten)]
    pub(crate) observed: RulesObserved,
    pub(crate) list: Vec<ConsoleRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ConsoleRule {
    pub(crate) id: u32,
    #[serde(flatten)]
    pub(crate) shown: RuleName,
    /// The path of the first rule below its domain, and the name of its limit, as exceptions have them.
    pub(crate) path: Option<String>,
    pub(crate) name: String,
    pub(crate) how: String,
    pub(crate) asked: f64,
    pub(crate) denied: f64,
    pub(crate) asked_15m: u64,
    pub(crate) denied_15m: u64,
    pub(crate) since: Option<u64>,
    /// Denied keys.
    pub(crate) keys: usize,
    pub(crate) more_keys: bool,
    /// Counts of steps of ten seconds.
    pub(crate) spark_asked: Vec<u32>,
    pub(crate) spark: Vec<u32>,
}

/// What tells the rows of rules apart. Rules of two instances are one row if all of it is equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct RuleName {
    pub(crate) domain: String,
    /// The label of the limit.
    pub(crate) rule: String,
    /// Such as `600 per minute`.
    pub(crate) limit: String,
    /// `enforced`, `shadow`, `quota` or `override`.
    pub(crate) kind: String,
}

/// How serious a mark or a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Callers are affected now, or the process is not ready.
    Bad,
    /// Somebody should look within a day.
    Warn,
    /// It is over, or no fault.
    #[serde(rename = "")]
    Plain,
}

/// Times are seconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Mark {
    pub(super) at: u64,
    /// The end of a span.
    pub(super) until: Option<u64>,
    pub(super) level: Level,
    pub(super) text: String,
}

/// What is wrong, in words.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Notice {
    pub(crate) level: Level,
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) fix: String,
}

/// Names of entries, and what is shown of their values.
pub(crate) type ShownEntries = Vec<(String, String)>;

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ConsoleKey {
    pub(crate) id: String,
    /// The id of the rule.
    pub(crate) rule: u32,
    /// The limit, where the rule has several.
    pub(crate) limit: Option<String>,
    pub(crate) entries: ShownEntries,
    /// Whether a value is secret.
    pub(crate) secret: bool,
    pub(crate) exception: Option<KeyException>,
    pub(crate) denied: f64,
    pub(crate) denied_15m: u64,
    pub(crate) spark: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ConsoleStore {
    /// `memory` or `redis`.
    pub(crate) kind: String,
    pub(crate) answers: bool,
    pub(crate) p50_us: Option<u64>,
    pub(crate) p99_us: Option<u64>,
    pub(crate) queue: u64,
    /// The mean of requests in a batch.
    pub(crate) batch: Option<f64>,
    pub(crate) breakers: usize,
    pub(crate) breakers_open: usize,
    pub(crate) deny_hits: f64,
    pub(crate) deny_keys: u64,
    pub(crate) server: Option<String>,
    pub(crate) last_outage: Option<ConsoleOutage>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ConsoleOutage {
    pub(crate) at: u64,
    pub(crate) seconds: u64,
    pub(crate) error: String,
}

/// The rows of the exceptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct ConsoleExceptions {
    pub(crate) block: RowsOfKind,
    pub(crate) exempt: RowsOfKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct RowsOfKind {
    pub(crate) rows: u64,
    /// The requests that they changed in 15 minutes.
    pub(crate) requests_15m: u64,
}

/// What no limit stops.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct ConsoleUnlimited {
    pub(crate) without_limit: f64,
    /// Shapes of requests without a limit, with their rates.
    pub(crate) names: Vec<(String, f64)>,
    pub(crate) unknown_domain: f64,
    pub(crate) domains: Vec<String>,
    /// Requests that a failure policy admits.
    pub(crate) allowed: f64,
    pub(crate) shadow_mode: bool,
    pub(crate) evictions: u64,
}

/// The newest second, and the rows that changed in it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct ConsoleSample {
    pub(crate) end: u64,
    pub(crate) sample: Second,
    /// Id, asked, denied, denied in 15 minutes.
    pub(crate) rules: Vec<(u32, f64, f64, u64)>,
    /// Id, denied, denied in 15 minutes.
    pub(crate) keys: Vec<(String, f64, u64)>,
    #[serde(default)]
    pub(crate) marks: Vec<Mark>,
    pub(crate) reasons: Vec<String>,
}

impl ConsoleState {
    /// Adds a sample. Seconds that the stream left out count 0 until the next state.
    pub(crate) fn add(&mut self, sample: ConsoleSample) {
        let ConsoleSample { end, sample, rules, keys, marks: _, reasons } = sample;
        let missed = end.saturating_sub(self.end.saturating_add(1)).min(SECONDS as u64);
        for _ in 0..missed {
            self.series.push(Second::default());
        }
        self.series.push(sample);
        self.end = end;
        self.instance.reasons = reasons;
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
    /// Adds those of another instance, which has the same files.
    pub(crate) fn add(&mut self, other: Self) {
        self.rows = self.rows.max(other.rows);
        self.requests_15m = self.requests_15m.saturating_add(other.requests_15m);
    }
}
