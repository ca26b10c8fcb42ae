//! A rule: the limits of descriptors that end at one node of the tree.

use std::sync::Arc;

use super::limit::Limit;
use super::metadata::Metadata;
use super::shard::ShardBy;

/// Position of a rule in its [`RuleSet`](super::RuleSet), dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// Whether the path under which a rule's hits are counted has values of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatPath {
    /// It is the path of the rule.
    OfRule,
    /// The levels with `value_to_metric` have the value of the request.
    PerLevel,
    /// Every level has the value of the request (`detailed_metric`).
    Detailed,
}

/// The limits at one node, and their effect on the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its position in the rule set.
    pub id: RuleId,
    /// The domain it belongs to.
    pub domain: Arc<str>,
    /// The domain and the nodes down to this one, `domain.key_value.key`: the stat key of `envoyproxy/ratelimit`. Built
    /// from the rule file alone, never from values of requests.
    pub path: Arc<str>,
    /// All of them apply to each descriptor that ends here, each with its own counter. Not empty.
    pub limits: Vec<Arc<Limit>>,
    /// Whether the path under which its hits are counted has values of requests.
    pub stat_path: StatPath,
    /// The limits count, but never deny.
    pub shadow: bool,
    /// The rule denies only if every quota rule of the request is over its limit.
    pub quota: bool,
    /// Which counters share a slot of a Redis Cluster.
    pub shard_by: ShardBy,
    /// Sent back with the answer.
    pub metadata: Option<Metadata>,
}
