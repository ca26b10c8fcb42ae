//! Rows that are set and removed while the process runs. Clones share their rows: a change copies one shard, however
//! many rows there are.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::network::{EXACT, Network, networks_of};
use super::rows::{ExceptionRow, RowValue};
use crate::rules::wildcards::Glob;

/// Most rows of a shard, in the mean. A change copies a pointer for each, and one for each shard.
const ROWS_OF_SHARD: usize = 128;

/// The live rows of a process. They outrank the rows of files, and later versions over earlier ones.
#[derive(Clone, Debug, Default)]
pub struct LiveRows {
    groups: Arc<HashMap<GroupName, Arc<LiveGroup>>>,
    len: usize,
}

/// Domain and key.
type GroupName = (Glob, Arc<str>);

/// The live rows with one domain and one key.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveGroup {
    /// By value hash. Their number is 0 or a power of two.
    shards: Vec<Arc<Shard>>,
    hashing: DefaultHashBuilder,
    len: usize,
    /// Number of rows for networks per prefix length, longest first.
    prefix_lens: BTreeMap<Reverse<u8>, usize>,
}

type Shard = HashTable<Arc<ExceptionRow>>;

/// A [`RowValue`] to look for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Sought<'v> {
    Exact(&'v str),
    Network(Network),
}

impl<'v> From<&'v RowValue> for Sought<'v> {
    fn from(value: &'v RowValue) -> Self {
        match value {
            RowValue::Exact(value) => Self::Exact(value),
            RowValue::Network(network) => Self::Network(*network),
        }
    }
}

impl LiveRows {
    /// Adds a row whose source is [`RowSource::Live`](super::RowSource::Live). The caller removes the row that it
    /// replaces.
    pub fn insert(&mut self, row: Arc<ExceptionRow>) {
        let group = Arc::make_mut(&mut self.groups).entry(name_of(&row)).or_default();
        Arc::make_mut(group).insert(row);
        self.len += 1;
    }

    /// Removes a row that was inserted; not an equal one.
    pub fn remove(&mut self, row: &Arc<ExceptionRow>) {
        let name = name_of(row);
        if !self.groups.get(&name).is_some_and(|group| group.contains(row)) {
            return;
        }
        let groups = Arc::make_mut(&mut self.groups);
        let group = Arc::make_mut(groups.entry(name.clone()).or_default());
        group.remove(row);
        if group.len == 0 {
            groups.remove(&name);
        }
        self.len -= 1;
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// In no particular order.
    pub fn rows(&self) -> impl Iterator<Item = &Arc<ExceptionRow>> {
        self.groups.values().flat_map(|group| group.shards.iter().flat_map(|shard| shard.iter()))
    }

    /// The groups for a domain, with their keys.
    pub(super) fn groups_for(&self, domain: &str) -> Vec<(Arc<str>, Arc<LiveGroup>)> {
        let matching = self.groups.iter().filter(|((pattern, _), _)| pattern.matches(domain));
        matching.map(|((_, key), group)| (Arc::clone(key), Arc::clone(group))).collect()
    }
}

fn name_of(row: &ExceptionRow) -> GroupName {
    (row.domain.clone(), Arc::clone(&row.key))
}

impl LiveGroup {
    /// Returns the rows for a value, each with its own value's precision.
    pub(super) fn rows_of<'g, 'v>(
        &'g self,
        value: &'v str,
    ) -> impl Iterator<Item = (u8, &'g Arc<ExceptionRow>)> + use<'g, 'v> {
        let of_networks = networks_of(value, self.prefix_lens.keys().map(|Reverse(len)| *len));
        let of_networks = of_networks.map(|(precision, network)| (precision, Sought::Network(network)));
        let sought = [(EXACT, Sought::Exact(value))].into_iter().chain(of_networks);
        sought.flat_map(|(precision, sought)| self.rows_with(sought).map(move |row| (precision, row)))
    }

    fn rows_with<'g, 'v>(
        &'g self,
        sought: Sought<'v>,
    ) -> impl Iterator<Item = &'g Arc<ExceptionRow>> + use<'g, 'v> {
        let hash = self.hashing.hash_one(sought);
        let shard = self.shards.get(self.shard(hash));
        let with_hash = shard.into_iter().flat_map(move |shard| shard.iter_hash(hash));
        with_hash.filter(move |row| Sought::from(&row.value) == sought)
    }

    fn contains(&self, row: &Arc<ExceptionRow>) -> bool {
        self.rows_with((&row.value).into()).any(|other| Arc::ptr_eq(other, row))
    }

    /// The shard's index. A shard uses other bits of the hash.
    fn shard(&self, hash: u64) -> usize {
        (hash >> 32) as usize & self.shards.len().saturating_sub(1)
    }

    fn insert(&mut self, row: Arc<ExceptionRow>) {
        if self.len == self.shards.len() * ROWS_OF_SHARD {
            let shards = vec![Arc::default(); (2 * self.shards.len()).max(1)];
            let old = std::mem::replace(&mut self.shards, shards);
            old.iter().flat_map(|shard| shard.iter()).for_each(|row| self.add_to_shard(Arc::clone(row)));
        }
        self.len += 1;
        if let RowValue::Network(network) = &row.value {
            *self.prefix_lens.entry(Reverse(network.prefix_len())).or_default() += 1;
        }
        self.add_to_shard(row);
    }

    fn add_to_shard(&mut self, row: Arc<ExceptionRow>) {
        let hash = self.hashing.hash_one(Sought::from(&row.value));
        let index = self.shard(hash);
        let hashing = &self.hashing;
        let hash_of = |row: &Arc<ExceptionRow>| hashing.hash_one(Sought::from(&row.value));
        Arc::make_mut(&mut self.shards[index]).insert_unique(hash, row, hash_of);
    }

    /// Removes a row that is there.
    fn remove(&mut self, row: &Arc<ExceptionRow>) {
        let hash = self.hashing.hash_one(Sought::from(&row.value));
        let index = self.shard(hash);
        let shard = Arc::make_mut(&mut self.shards[index]);
        if let Ok(found) = shard.find_entry(hash, |other| Arc::ptr_eq(other, row)) {
            found.remove();
            self.len -= 1;
        }
        if let RowValue::Network(network) = &row.value {
            let len = Reverse(network.prefix_len());
            let of_len = self.prefix_lens.entry(len).or_default();
            *of_len = of_len.saturating_sub(1);
            if *of_len == 0 {
                self.prefix_lens.remove(&len);
            }
        }
    }
}
