//! The rules of one domain that come in a message instead of a file.

use std::sync::Arc;

use engine::{Metadata, Unit};

/// A message with the rules of one domain. It can say less than a file: the keys of envoyproxy/ratelimit only.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleResource {
    /// For messages.
    pub name: Arc<str>,
    /// The reason if the message cannot be decoded.
    pub rules: Result<ResourceRules, String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ResourceRules {
    pub domain: String,
    pub descriptors: Vec<ResourceDescriptor>,
}

/// A node of the tree. The fields are those of a rule file.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceDescriptor {
    pub key: String,
    /// Empty: every value.
    pub value: String,
    pub rate_limit: Option<ResourceLimit>,
    pub descriptors: Vec<ResourceDescriptor>,
    pub shadow_mode: bool,
    pub quota_mode: bool,
    pub detailed_metric: bool,
    pub metadata: Option<Metadata>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceLimit {
    /// What the message says instead, if it names no unit.
    pub unit: Result<Unit, String>,
    pub requests_per_unit: u32,
    pub unlimited: bool,
    /// Empty: no name.
    pub name: String,
    /// The names of limits.
    pub replaces: Vec<String>,
}
