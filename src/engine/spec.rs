//! A rule set as its source describes it, before it is compiled.

use super::{LimitError, LimitSpec, Metadata, ShardBy};

/// All rules of one domain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DomainSpec {
    /// Not empty.
    pub domain: String,
    /// Of rules that do not say, and of limits that come with requests.
    pub shard_by: ShardBy,
    /// The first level of the tree.
    pub descriptors: Vec<NodeSpec>,
}

/// One node of the tree.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSpec {
    /// Not empty.
    pub key: String,
    /// Empty = any value of the key, each counted apart. May hold `*`.
    pub value: String,
    /// All values that match the wildcard share one counter.
    pub share_threshold: bool,
    /// What applies to descriptors that end here.
    pub rule: Option<RuleSpec>,
    /// The next level.
    pub descriptors: Vec<NodeSpec>,
}

/// What applies at a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSpec {
    /// Not empty; several are all applied.
    pub limits: Vec<LimitSpec>,
    /// See [`Rule::shadow`](super::Rule::shadow).
    pub shadow: bool,
    /// See [`Rule::quota`](super::Rule::quota).
    pub quota: bool,
    /// See [`Rule::shard_by`](super::Rule::shard_by); `None` = as the domain says.
    pub shard_by: Option<ShardBy>,
    /// See [`Rule::metadata`](super::Rule::metadata).
    pub metadata: Option<Metadata>,
}

impl NodeSpec {
    /// The node's name within its level: `key_value`, or the key alone. Joined as the reference service joins it, so
    /// that key `a` value `b_c` and key `a_b` value `c` are the same node.
    #[must_use]
    pub fn composite(&self) -> String {
        if self.value.is_empty() { self.key.clone() } else { format!("{}_{}", self.key, self.value) }
    }
}

/// Why specs do not make a rule set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// Two specs for one domain.
    #[error("duplicate domain '{0}' in config file")]
    DuplicateDomain(String),
    /// Two nodes of one name at one level.
    #[error("duplicate descriptor composite key '{0}'")]
    DuplicateComposite(String),
    /// A limit out of range.
    #[error("{path}: {cause}")]
    Limit {
        /// The rule's path.
        path: String,
        /// What is wrong with it.
        cause: LimitError,
    },
}
