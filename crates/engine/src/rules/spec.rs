//! Rules as their source describes them: [`DomainSpec`], [`NodeSpec`], [`RuleSpec`].

use std::collections::BTreeMap;

use crate::limit::Limit;
use crate::limit::key::ShardBy;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DomainSpec {
    /// Not empty.
    pub domain: String,
    /// For rules that do not set it, and for overrides.
    pub shard_by: ShardBy,
    /// The first level of the tree.
    pub descriptors: Vec<NodeSpec>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSpec {
    /// Not empty.
    pub key: String,
    /// `*` matches any string. Empty: any value, each with its own counter.
    pub value: String,
    /// `true` if all values that match the wildcard share one counter.
    pub share_threshold: bool,
    /// `true` if the values of matching entries are secret; so are all other values of the key in this domain.
    pub secret: bool,
    /// `true` if envoyproxy/ratelimit counts hits under the request's value at this level (`value_to_metric`).
    pub value_to_metric: bool,
    /// `true` if the entry's value is a tier, which selects the values of the limits below. Counter keys then omit the
    /// entry, so that another tier finds the same counter.
    pub tier: bool,
    /// For descriptors that end here.
    pub rule: Option<RuleSpec>,
    /// The next level of the tree.
    pub descriptors: Vec<NodeSpec>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleSpec {
    /// At least one. All of them apply.
    pub limits: Vec<Limit>,
    pub shadow: bool,
    pub quota: bool,
    /// `true` if envoyproxy/ratelimit counts hits under the request's value at every level.
    pub detailed_metric: bool,
    /// `None`: that of the domain.
    pub shard_by: Option<ShardBy>,
    pub metadata: Option<Metadata>,
}

impl NodeSpec {
    /// `true` if requests with different values match the node, each with its own counter.
    pub(crate) fn has_open_value(&self) -> bool {
        !self.share_threshold && (self.value.is_empty() || self.composite().contains('*'))
    }

    /// The node's name within its level: [`composite`].
    pub fn composite(&self) -> String {
        composite(&self.key, &self.value)
    }
}

/// The name of a node within its level: `key_value`, or the bare key. As in `envoyproxy/ratelimit`, key `a` with value
/// `b_c` and key `a_b` with value `c` are the same node.
pub fn composite(key: &str, value: &str) -> String {
    if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    #[error("duplicate domain '{0}' in config file")]
    DuplicateDomain(String),
    /// Two nodes with the same name at one level.
    #[error("duplicate descriptor composite key '{0}'")]
    DuplicateComposite(String),
    /// Values are secret, but there is no [`HashKey`](crate::HashKey).
    #[error("secret values need a key for their hashes")]
    NoHashKey,
}

/// A rule's `metadata`, in the shapes that a protobuf `Struct` can hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Metadata {
    Null,
    Bool(bool),
    /// A double, as in a protobuf `Struct`. Never used in a decision.
    Number(f64),
    Text(String),
    List(Vec<Metadata>),
    Map(BTreeMap<String, Metadata>),
}

impl Metadata {
    /// Adds the values of `other` that `self` lacks. If both have a value, that of `self` stays; two maps are merged.
    pub fn merge(&mut self, other: &Self) {
        let (Self::Map(ours), Self::Map(theirs)) = (self, other) else {
            return;
        };
        for (name, value) in theirs {
            match ours.get_mut(name) {
                Some(kept) => kept.merge(value),
                None => {
                    ours.insert(name.clone(), value.clone());
                }
            }
        }
    }
}
