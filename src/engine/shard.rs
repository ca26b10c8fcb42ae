//! Which counters share a slot of a Redis Cluster.

/// Which part of a descriptor decides where its counters are kept. Counters that are kept together are decided together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ShardBy {
    /// The domain and the first entry: all below one tenant, user or address is kept together.
    #[default]
    FirstEntry,
    /// The domain alone: all of its counters are kept together, on one node.
    Domain,
    /// The whole descriptor: each is kept by itself.
    Descriptor,
}

impl ShardBy {
    /// Every one, the default first.
    pub const ALL: [Self; 3] = [Self::FirstEntry, Self::Domain, Self::Descriptor];

    /// Its name in rule files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::FirstEntry => "first_entry",
            Self::Domain => "domain",
            Self::Descriptor => "descriptor",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|shard_by| shard_by.name() == name)
    }
}
