//! Resolves repeated keys and merge keys (`<<`) of YAML maps, so that all other code sees one [`Entry`] per key.
//!
//! envoyproxy/ratelimit decodes entries in order into one Go struct. So the later of two values wins, written or
//! merged. Structs and Go maps merge key by key: a key that only the earlier value has is kept.

use std::collections::HashMap;

use super::yaml11::ScalarValue;
use super::{FileReport, Position};
use crate::yaml::{Content, Node};

/// A key of the resolved map, with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'n> {
    pub line: u32,
    /// `None` for a key that is not a string.
    pub name: Option<&'n str>,
    pub key: &'n Node,
    pub value: MergedValue<'n>,
    /// `true` if an earlier entry gave this key a value.
    pub overrides: bool,
}

impl<'n> Entry<'n> {
    fn new(key: &'n Node, value: &'n Node) -> Self {
        Self { line: key.line, name: key_name(key), key, value: value.into(), overrides: false }
    }
}

/// A node, or several maps, with later ones overriding single keys of earlier ones.
#[derive(Clone, Debug)]
pub(crate) struct MergedValue<'n> {
    earlier: Vec<&'n Node>,
    last: &'n Node,
}

impl<'n> From<&'n Node> for MergedValue<'n> {
    fn from(node: &'n Node) -> Self {
        Self { earlier: Vec::new(), last: node }
    }
}

impl<'n> MergedValue<'n> {
    /// The node that decides the type of the value: a part that is not a map, so that it is reported, else the last.
    pub fn node(&self) -> &'n Node {
        self.earlier.iter().copied().find(|part| !part.is_map()).unwrap_or(self.last)
    }

    fn merge_over(&mut self, before: &mut Self) {
        before.earlier.push(before.last);
        before.earlier.append(&mut self.earlier);
        self.earlier = std::mem::take(&mut before.earlier);
    }
}

/// Reads the entries of maps, and warns if an entry written in the map is overridden.
pub(crate) struct EntryReader<'r> {
    /// Returns `true` for a key whose values are all merged. For other keys only the last value applies.
    pub is_merged: fn(&str) -> bool,
    pub report: &'r mut FileReport,
}

impl EntryReader<'_> {
    /// The resolved entries, in the order in which their keys first appear. Empty for a value that is not a map.
    pub fn entries<'n>(&mut self, map: &MergedValue<'n>, at: &Position) -> Vec<Entry<'n>> {
        if map.earlier.is_empty() {
            return self.entries_of_node(map.last, at);
        }
        self.entries_of_parts(map.earlier.iter().copied().chain([map.last]), at)
    }

    fn entries_of_parts<'n>(
        &mut self,
        parts: impl Iterator<Item = &'n Node>,
        at: &Position,
    ) -> Vec<Entry<'n>> {
        let mut table = EntryTable::default();
        for part in parts {
            for entry in self.entries_of_node(part, at) {
                self.add_entry(&mut table, entry, Origin::Part, at);
            }
        }
        table.into_entries()
    }

    fn entries_of_node<'n>(&mut self, node: &'n Node, at: &Position) -> Vec<Entry<'n>> {
        let Content::Map(pairs) = &node.content else {
            return Vec::new();
        };
        let mut table = EntryTable::default();
        for (key, value) in pairs.iter() {
            if is_merge_key(key) {
                for entry in self.merged_entries(value, &at.on_line(key.line)) {
                    self.add_entry(&mut table, entry, Origin::MergeKey(key.line), at);
                }
            } else {
                self.add_entry(&mut table, Entry::new(key, value), Origin::Written, at);
            }
        }
        table.into_entries()
    }

    /// The entries that a merge key adds: of several maps the first wins, as in YAML 1.1.
    fn merged_entries<'n>(&mut self, value: &'n Node, at: &Position) -> Vec<Entry<'n>> {
        match &value.content {
            Content::Map(_) => self.entries_of_node(value, at),
            Content::List(nodes) if nodes.iter().all(Node::is_map) => {
                self.entries_of_parts(nodes.iter().rev(), at)
            }
            _ => {
                let reason =
                    "error loading config file: map merge requires map or sequence of maps as the value";
                self.report.error(at, reason);
                Vec::new()
            }
        }
    }

    fn add_entry<'n>(
        &mut self,
        table: &mut EntryTable<'n>,
        mut entry: Entry<'n>,
        origin: Origin,
        at: &Position,
    ) {
        let Some((name, before, before_origin)) = table.same_key(&entry) else {
            table.push(entry, origin);
            return;
        };
        let has_both = !is_null(before.value.last) && !is_null(entry.value.last);
        let is_merged = has_both && (self.is_merged)(name);
        match (*before_origin, origin) {
            (Origin::Written, Origin::Written) => {
                self.report.warn(&at.on_line(entry.line), repeated(name, before.line, is_merged));
            }
            (Origin::Written, Origin::MergeKey(line)) => {
                self.report.warn(&at.on_line(line), overridden(name, before.line, is_merged));
            }
            (Origin::MergeKey(_) | Origin::Part, _) | (_, Origin::Part) => {}
        }
        entry.overrides = !is_null(before.value.last);
        if is_merged {
            entry.value.merge_over(&mut before.value);
        }
        *before = entry;
        *before_origin = origin;
    }
}

fn repeated(name: &str, line: u32, is_merged: bool) -> String {
    if is_merged {
        format!("'{name}' is also set on line {line}; both are merged, and the keys of this one win")
    } else {
        format!("'{name}' is also set on line {line}; this one wins")
    }
}

fn overridden(name: &str, line: u32, is_merged: bool) -> String {
    let what = if is_merged { "keys of " } else { "" };
    format!(
        "the merged map overrides {what}'{name}' of line {line}; put '<<' first to keep the value of that line"
    )
}

fn is_merge_key(key: &Node) -> bool {
    matches!(&key.content, Content::Scalar(scalar) if scalar.is_plain && &*scalar.text == "<<")
}

fn is_null(node: &Node) -> bool {
    matches!(&node.content, Content::Scalar(scalar) if ScalarValue::resolve(scalar) == ScalarValue::Null)
}

fn key_name(key: &Node) -> Option<&str> {
    match &key.content {
        Content::Scalar(scalar) if ScalarValue::resolve(scalar) == ScalarValue::Text => Some(&scalar.text),
        _ => None,
    }
}

/// How an entry came into a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Written,
    /// The merge key on this line added the entry.
    MergeKey(u32),
    /// From one of several merged maps. The merge itself is reported at the keys of these maps.
    Part,
}

/// The entries of one map: one per name.
#[derive(Default)]
struct EntryTable<'n> {
    entries: Vec<(Entry<'n>, Origin)>,
    indexes: HashMap<&'n str, usize>,
}

impl<'n> EntryTable<'n> {
    fn push(&mut self, entry: Entry<'n>, origin: Origin) {
        if let Some(name) = entry.name {
            self.indexes.insert(name, self.entries.len());
        }
        self.entries.push((entry, origin));
    }

    /// The earlier entry with the key of `entry`.
    fn same_key(&mut self, entry: &Entry<'n>) -> Option<(&'n str, &mut Entry<'n>, &mut Origin)> {
        let name = entry.name?;
        let (before, origin) = self.entries.get_mut(*self.indexes.get(name)?)?;
        Some((name, before, origin))
    }

    fn into_entries(self) -> Vec<Entry<'n>> {
        self.entries.into_iter().map(|(entry, _)| entry).collect()
    }
}
