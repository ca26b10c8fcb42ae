//! A story as data: the rules in force, and what happens, one step after the other. One line of JSON is one story.
//!
//! The fields of [`RuleFile`], [`Node`], [`Limit`] and [`Row`] are the keys of rule files and the columns of
//! exceptions, so a rule file is the JSON of a [`RuleFile`], which is YAML too.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything that decides a story's answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Story {
    /// Chooses what a relation changes.
    pub seed: u64,
    /// The time of the store at the start, microseconds since the epoch.
    pub start_us: u64,
    /// The rules at the start: a file for each domain.
    pub rules: Vec<RuleFile>,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// The clock of the store moves by this many microseconds.
    Clock(i64),
    /// The error of a process's clock, microseconds.
    Skew {
        process: usize,
        by_us: i64,
    },
    /// Other rule files, in place of all.
    Rules(Vec<RuleFile>),
    /// Other exceptions, in place of all.
    Rows(Vec<RowFile>),
    Call(Call),
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Call {
    /// The name of the answer's receipt.
    pub id: u32,
    /// The process that plans the request: 0 or 1.
    pub process: usize,
    pub domain: String,
    pub hits_addend: u32,
    pub descriptors: Vec<Ask>,
}

/// A descriptor of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ask {
    pub entries: Vec<(String, String)>,
    pub limit: Option<OwnLimit>,
    pub hits: Option<u64>,
    pub refund: bool,
    pub receipt: Option<Returned>,
}

/// A limit that comes with a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OwnLimit {
    pub requests_per_unit: u32,
    pub unit: String,
    pub unit_multiplier: Option<u32>,
}

/// The receipt of a settle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Returned {
    /// That of the call with this id. Without one the descriptor is left out, as Envoy does.
    Of(u32),
    Text(String),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleFile {
    pub domain: String,
    pub shard_by: Option<String>,
    pub descriptors: Vec<Node>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Node {
    pub key: String,
    pub value: Option<String>,
    pub rate_limit: Option<Limit>,
    pub rate_limits: Vec<Limit>,
    pub shadow_mode: bool,
    pub quota_mode: bool,
    pub detailed_metric: bool,
    pub value_to_metric: bool,
    pub share_threshold: bool,
    pub secret: bool,
    pub tier: bool,
    pub shard_by: Option<String>,
    pub metadata: Option<Value>,
    pub descriptors: Vec<Self>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limit {
    pub name: Option<String>,
    pub requests_per_unit: Option<u64>,
    pub unit: Option<String>,
    pub unit_multiplier: Option<u32>,
    pub unlimited: bool,
    pub algorithm: Option<String>,
    pub calendar: Option<String>,
    pub starts: Option<String>,
    pub burst: Option<u32>,
    pub refill: Option<String>,
    pub mode: Option<String>,
    pub charging: Option<String>,
    pub settle: bool,
    pub reserve: Option<u64>,
    pub on_store_failure: Option<String>,
    pub on_over: Option<String>,
    pub near: Option<f64>,
    pub replaces: Vec<Replaced>,
    pub tiers: BTreeMap<String, Tier>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replaced {
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Tier {
    Number(u64),
    /// `unlimited`.
    Word(String),
    Numbers {
        requests_per_unit: u64,
        #[serde(default)]
        burst: Option<u32>,
    },
}

/// A file of exceptions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RowFile {
    /// `*.csv`, whose rows have a tier only, or `*.yaml`.
    pub name: String,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Row {
    pub domain: String,
    pub key: String,
    pub value: String,
    pub path: Option<String>,
    pub limit_name: Option<String>,
    pub tier: Option<String>,
    pub limit: Option<u64>,
    pub multiplier: Option<f64>,
    pub block: bool,
    pub exempt: bool,
    pub shadow_mode: Option<bool>,
    /// Microseconds since the epoch. A file has it as a time of RFC 3339, as `until`.
    pub from: Option<u64>,
    pub until: Option<u64>,
}

impl Node {
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.rate_limit.iter().chain(&self.rate_limits)
    }

    pub fn limits_mut(&mut self) -> impl Iterator<Item = &mut Limit> {
        self.rate_limit.iter_mut().chain(&mut self.rate_limits)
    }

    /// The name of the node among those of its level: `key_value`, or the key alone.
    #[must_use]
    pub fn composite(&self) -> String {
        self.value.as_ref().map_or_else(|| self.key.clone(), |value| format!("{}_{value}", self.key))
    }

    /// Calls `change` with this node and all below it.
    pub fn each_mut(&mut self, change: &mut impl FnMut(&mut Self)) {
        change(self);
        self.descriptors.iter_mut().for_each(|node| node.each_mut(change));
    }
}

impl Story {
    /// The times of the store in the story, and the largest error of a process's clock.
    #[must_use]
    pub fn times_us(&self) -> (u64, u64, u64) {
        let (mut now_us, mut skew_us) = (self.start_us, 0);
        let (mut first_us, mut last_us) = (now_us, now_us);
        for step in &self.steps {
            match step {
                Step::Clock(by_us) => now_us = now_us.saturating_add_signed(*by_us),
                Step::Skew { by_us, .. } => skew_us = skew_us.max(by_us.unsigned_abs()),
                Step::Rules(_) | Step::Rows(_) | Step::Call(_) => {}
            }
            (first_us, last_us) = (first_us.min(now_us), last_us.max(now_us));
        }
        (first_us, last_us, skew_us)
    }

    /// The story as one line. A key with nothing in it is left out.
    #[must_use]
    pub fn line(&self) -> String {
        text_of(self)
    }
}

/// JSON without empty members: the text of a rule file, and a line of a file of stories.
#[must_use]
pub fn text_of(part: &impl Serialize) -> String {
    let mut value = serde_json::to_value(part).unwrap_or_default();
    strip(&mut value);
    value.to_string()
}

fn strip(value: &mut Value) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(strip),
        Value::Object(members) => {
            members.values_mut().for_each(strip);
            members.retain(|name, member| match member {
                // A row can say that a rule is not in shadow mode.
                Value::Bool(false) => name == "shadow_mode",
                Value::Null => false,
                Value::Array(elements) => !elements.is_empty(),
                Value::Object(members) => !members.is_empty(),
                Value::Number(_) | Value::String(_) | Value::Bool(true) => true,
            });
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
