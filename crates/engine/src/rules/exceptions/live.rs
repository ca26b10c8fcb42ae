//! Rows that are set and removed while the process runs. Clones share their maps: a change copies a few nodes, however
//! many rows there are.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;
use rpds::HashTrieMapSync;
use smallvec::SmallVec;

use super::network::{EXACT, Network, networks_of};
use super::rows::{ExceptionRow, RowValue};
use crate::rules::wildcards::Glob;

type Map<K, V> = HashTrieMapSync<K, V, DefaultHashBuilder>;
type Rows = SmallVec<[Arc<ExceptionRow>; 1]>;

/// The live rows of a process. They outrank the rows of files, and later versions over earlier ones.
#[derive(Clone, Debug, Default)]
pub struct LiveRows {
    by_id: Map<Arc<str>, Arc<ExceptionRow>>,
    /// By domain and key.
    groups: Map<(Glob, Arc<str>), LiveGroup>,
}

/// The live rows with one domain and one key.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveGroup {
    exact: Map<Arc<str>, Rows>,
    networks: Map<Network, Rows>,
    /// Number of networks per prefix length, longest first.
    prefix_lens: BTreeMap<Reverse<u8>, usize>,
}

impl LiveRows {
    /// Adds a row whose source is [`RowSource::Live`](super::RowSource::Live). It replaces the row with the same id.
    pub fn insert(&mut self, row: Arc<ExceptionRow>) {
        self.remove(&row);
        self.change_group(&row, |rows| rows.push(Arc::clone(&row)));
        self.by_id.insert_mut(Arc::clone(row.source.name()), row);
    }

    /// Removes the row with the id of `row`, if there is one.
    pub fn remove(&mut self, row: &ExceptionRow) {
        let Some(known) = self.by_id.get(row.source.name()).cloned() else { return };
        self.change_group(&known, |rows| rows.retain(|row| !Arc::ptr_eq(row, &known)));
        self.by_id.remove_mut(known.source.name());
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.size()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// In no particular order.
    pub fn rows(&self) -> impl Iterator<Item = &Arc<ExceptionRow>> {
        self.by_id.values()
    }

    /// The groups for a domain, with their keys.
    pub(super) fn groups_for(&self, domain: &str) -> Vec<(Arc<str>, LiveGroup)> {
        let matching = self.groups.iter().filter(|((pattern, _), _)| pattern.matches(domain));
        matching.map(|((_, key), group)| (Arc::clone(key), group.clone())).collect()
    }

    /// Changes the rows with the domain, key and value of `row`.
    fn change_group(&mut self, row: &ExceptionRow, change: impl FnOnce(&mut Rows)) {
        let name = (row.domain.clone(), Arc::clone(&row.key));
        let mut group = self.groups.get(&name).cloned().unwrap_or_default();
        group.change(&row.value, change);
        if group.exact.is_empty() && group.networks.is_empty() {
            self.groups.remove_mut(&name);
        } else {
            self.groups.insert_mut(name, group);
        }
    }
}

impl LiveGroup {
    /// Returns the rows for a value, each with its own value's precision.
    pub(super) fn rows_of(&self, value: &str) -> impl Iterator<Item = (u8, &Arc<ExceptionRow>)> {
        let exact = self.exact.get(value).map(|rows| (EXACT, rows));
        let of_networks = networks_of(value, self.prefix_lens.keys().map(|Reverse(len)| *len))
            .filter_map(|(precision, network)| Some((precision, self.networks.get(&network)?)));
        let found = exact.into_iter().chain(of_networks);
        found.flat_map(|(precision, rows)| rows.iter().map(move |row| (precision, row)))
    }

    fn change(&mut self, value: &RowValue, change: impl FnOnce(&mut Rows)) {
        match value {
            RowValue::Exact(value) => change_rows(&mut self.exact, Arc::clone(value), change),
            RowValue::Network(network) => {
                let before = self.networks.size();
                change_rows(&mut self.networks, *network, change);
                let len = Reverse(network.prefix_len());
                let of_len = self.prefix_lens.entry(len).or_default();
                *of_len = *of_len + self.networks.size() - before;
                if *of_len == 0 {
                    self.prefix_lens.remove(&len);
                }
            }
        }
    }
}

fn change_rows<K: Clone + Eq + Hash>(map: &mut Map<K, Rows>, value: K, change: impl FnOnce(&mut Rows)) {
    let mut rows = map.get(&value).cloned().unwrap_or_default();
    change(&mut rows);
    if rows.is_empty() {
        map.remove_mut(&value);
    } else {
        map.insert_mut(value, rows);
    }
}
