//! Which counters share a slot of a Redis Cluster.

/// The part of a descriptor that decides the slot of its counters. Counters in one slot are decided in one script call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    /// Every value, the default first.
    pub const ALL: [Self; 3] = [Self::FirstEntry, Self::Domain, Self::Descriptor];

    /// The name in rule files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstEntry => "first_entry",
            Self::Domain => "domain",
            Self::Descriptor => "descriptor",
        }
    }

    /// The value of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shard_by| shard_by.name() == name)
    }
}
