//! Which pairs of a YAML map count, after repeated keys and merge keys (`<<`).
//!
//! The reference service decodes every pair, as it comes, into the same struct. So what stands later wins, merged or not;
//! and where the value is a struct itself, or a Go map, it wins key by key: what only an earlier one names stays.

use std::collections::HashMap;

use super::report::{At, Report};
use super::yaml11::Meaning;
use crate::yaml::{Content, Node};

/// A key that counts, after merge keys and repetitions are resolved.
#[derive(Clone, Debug)]
pub(super) struct Pair<'n> {
    /// The line of the key.
    pub line: u32,
    /// `None` where the key is not text.
    pub name: Option<&'n str>,
    pub key: &'n Node,
    /// One value, or all those that count together, the later over the earlier. Not empty.
    pub parts: Vec<&'n Node>,
    /// Whether it takes the place of an earlier value.
    pub replaces: bool,
}

impl<'n> Pair<'n> {
    fn written(key: &'n Node, value: &'n Node) -> Self {
        Self { line: key.line, name: name(key), key, parts: vec![value], replaces: false }
    }

    /// The value that stands last.
    pub fn value(&self) -> &'n Node {
        self.parts.last().copied().unwrap_or(self.key)
    }
}

/// Reads maps of one kind.
pub(super) struct Pairs<'r> {
    /// Whether the value of a key is put together from all pairs that give it one.
    pub is_joined: fn(&str) -> bool,
    pub report: &'r mut Report,
}

impl Pairs<'_> {
    /// The pairs that count, in the order of their first mention, of a map that is given in one or several `parts`.
    /// What is surprising about the order within a part is warned of.
    pub fn effective<'n>(&mut self, parts: &[&'n Node], at: &At) -> Vec<Pair<'n>> {
        if let [whole] = parts {
            return self.of_part(whole, at);
        }
        let mut kept = Kept::default();
        for part in parts {
            for pair in self.of_part(part, at) {
                self.put(&mut kept, pair, Origin::Joined, at);
            }
        }
        kept.into_pairs()
    }

    fn of_part<'n>(&mut self, part: &'n Node, at: &At) -> Vec<Pair<'n>> {
        let Content::Map(pairs) = &part.content else {
            return Vec::new();
        };
        let mut kept = Kept::default();
        for (key, value) in pairs.iter() {
            if is_merge(key) {
                for pair in self.merged(value, &at.on(key.line)) {
                    self.put(&mut kept, pair, Origin::Merged(key.line), at);
                }
            } else {
                self.put(&mut kept, Pair::written(key, value), Origin::Written, at);
            }
        }
        kept.into_pairs()
    }

    /// What a merge key brings: of several maps the first wins.
    fn merged<'n>(&mut self, value: &'n Node, at: &At) -> Vec<Pair<'n>> {
        match &value.content {
            Content::Map(_) => self.of_part(value, at),
            Content::List(nodes) if nodes.iter().all(Node::is_map) => {
                let parts: Vec<_> = nodes.iter().rev().collect();
                self.effective(&parts, at)
            }
            _ => {
                let reason =
                    "error loading config file: map merge requires map or sequence of maps as the value";
                self.report.error(at, reason);
                Vec::new()
            }
        }
    }

    fn put<'n>(&mut self, kept: &mut Kept<'n>, mut pair: Pair<'n>, origin: Origin, at: &At) {
        let earlier = pair.name.and_then(|name| Some((name, *kept.places.get(name)?)));
        let Some((name, place)) = earlier else {
            kept.add(pair, origin);
            return;
        };
        let (before, before_origin) = &mut kept.pairs[place];
        let joins = (self.is_joined)(name) && !is_null(before.value()) && !is_null(pair.value());
        match (*before_origin, origin) {
            (Origin::Written, Origin::Written) => {
                self.report.warn(&at.on(pair.line), repeated(name, before.line, joins));
            }
            (Origin::Written, Origin::Merged(line)) => {
                self.report.warn(&at.on(line), overridden(name, before.line, joins));
            }
            (Origin::Merged(_) | Origin::Joined, _) | (_, Origin::Joined) => {}
        }
        pair.replaces = !is_null(before.value());
        if joins {
            before.parts.append(&mut pair.parts);
            pair.parts = std::mem::take(&mut before.parts);
        }
        *before = pair;
        *before_origin = origin;
    }
}

fn repeated(name: &str, line: u32, joins: bool) -> String {
    if joins {
        format!("'{name}' stands here and on line {line}; both count, and this one wins where they differ")
    } else {
        format!("'{name}' stands here and on line {line}; this one counts")
    }
}

fn overridden(name: &str, line: u32, joins: bool) -> String {
    let what = if joins { "keys of " } else { "" };
    format!("the merged map overrides {what}'{name}' of line {line}; put '<<' first to keep that")
}

fn is_merge(key: &Node) -> bool {
    matches!(&key.content, Content::Scalar(scalar) if scalar.is_plain && &*scalar.text == "<<")
}

fn is_null(node: &Node) -> bool {
    matches!(&node.content, Content::Scalar(scalar) if scalar.meaning() == Meaning::Null)
}

fn name(key: &Node) -> Option<&str> {
    match &key.content {
        Content::Scalar(scalar) if scalar.meaning() == Meaning::Text => Some(&scalar.text),
        _ => None,
    }
}

/// How a key came into a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Written,
    /// By the merge key on that line.
    Merged(u32),
    /// From one of several parts. That there are several is warned of where they stand.
    Joined,
}

#[derive(Default)]
struct Kept<'n> {
    pairs: Vec<(Pair<'n>, Origin)>,
    places: HashMap<&'n str, usize>,
}

impl<'n> Kept<'n> {
    fn add(&mut self, pair: Pair<'n>, origin: Origin) {
        if let Some(name) = pair.name {
            self.places.insert(name, self.pairs.len());
        }
        self.pairs.push((pair, origin));
    }

    fn into_pairs(self) -> Vec<Pair<'n>> {
        self.pairs.into_iter().map(|(pair, _)| pair).collect()
    }
}
