//! Which counters share a slot of a Redis Cluster.

use strum::{EnumString, IntoStaticStr, VariantArray, VariantNames};

/// The part of a descriptor that decides the slot of its counters. Counters in one slot are decided in one script call.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, EnumString, IntoStaticStr, VariantArray, VariantNames,
)]
#[strum(serialize_all = "snake_case")]
pub enum ShardBy {
    /// Domain and first entry: all counters of one tenant, user or address share a slot.
    #[default]
    FirstEntry,
    /// The domain: all of its counters share a slot, and so a node.
    Domain,
    /// The whole descriptor: its slot is independent of other descriptors.
    Descriptor,
}

impl ShardBy {
    /// The name in rule files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}
