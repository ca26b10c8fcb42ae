//! A rule: what a descriptor that ends at one node of the tree is limited by.

use std::sync::Arc;

use super::{Limit, Metadata, ShardBy};

/// Position of a rule in its [`RuleSet`](super::RuleSet), dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(pub u32);

/// The limits at one node, and how they count towards the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its place in the rule set.
    pub id: RuleId,
    /// The domain it belongs to.
    pub domain: Arc<str>,
    /// The domain and the nodes that lead here, `domain.key_value.key`: the reference service's stat key, from the
    /// rule file alone.
    pub path: Arc<str>,
    /// All of them apply to every request that ends here, each with its own counter. Not empty.
    pub limits: Vec<Arc<Limit>>,
    /// Counts, but never denies.
    pub shadow: bool,
    /// Denies only together with every other quota rule of the request.
    pub quota: bool,
    /// Where its counters are kept.
    pub shard_by: ShardBy,
    /// Sent back with the answer.
    pub metadata: Option<Metadata>,
}
