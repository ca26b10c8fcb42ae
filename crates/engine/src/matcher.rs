//! Walks a descriptor down the rule tree, exactly as `envoyproxy/ratelimit` does (its `GetLimit`). Each level takes the
//! exact `key_value`, else the first matching wildcard in the order of the file, else the key alone. The walk never
//! goes back, and a rule applies only to descriptors that end at its node.

use smallvec::SmallVec;

use super::request::Entry;
use super::rule::{Rule, StatPath};
use super::rule_set::{DomainRules, Node};

/// How one entry was matched.
#[derive(Clone, Copy, Debug)]
pub enum Step<'r> {
    /// The node has this key and value.
    Exact(&'r Node),
    Wildcard(&'r Node),
    /// The node has this key and no value.
    KeyOnly(&'r Node),
}

impl<'r> Step<'r> {
    /// The node that matched.
    #[must_use]
    pub fn node(self) -> &'r Node {
        match self {
            Self::Exact(node) | Self::Wildcard(node) | Self::KeyOnly(node) => node,
        }
    }
}

/// The path of a descriptor through the tree.
#[derive(Clone, Debug, Default)]
pub struct Walk<'r> {
    /// One step per entry matched, in order.
    pub steps: SmallVec<[Step<'r>; 4]>,
    /// The node of the last entry; `None` if an entry did not match.
    pub end: Option<&'r Node>,
}

impl DomainRules {
    /// Walks `entries` down the tree. Reusing `scratch` saves an allocation per entry.
    #[must_use]
    pub fn walk<'r>(&'r self, entries: &[Entry], scratch: &mut String) -> Walk<'r> {
        let mut walk = Walk::default();
        let mut node = &self.root;
        for entry in entries {
            let Some(step) = match_entry(node, entry, scratch) else {
                return walk;
            };
            node = step.node();
            walk.steps.push(step);
        }
        walk.end = (!entries.is_empty()).then_some(node);
        walk
    }
}

fn match_entry<'r>(node: &'r Node, entry: &Entry, scratch: &mut String) -> Option<Step<'r>> {
    scratch.clear();
    scratch.reserve(entry.key.len() + 1 + entry.value.len());
    scratch.push_str(&entry.key);
    scratch.push('_');
    scratch.push_str(&entry.value);
    if let Some(child) = node.child(scratch) {
        return Some(Step::Exact(child));
    }
    if let Some(child) = node.wildcard_child(scratch) {
        return Some(Step::Wildcard(child));
    }
    node.child(&entry.key).map(Step::KeyOnly)
}

/// The stat path of a descriptor with these keys and values; `None` if it is the path of the rule. The hash of a secret
/// value takes the place of the value.
pub(super) fn stat_path<'e>(
    rule: &Rule,
    walk: &Walk<'_>,
    entries: impl Iterator<Item = (&'e str, &'e str)>,
) -> Option<Box<str>> {
    if rule.stat_path == StatPath::OfRule {
        return None;
    }
    let nodes = || walk.steps.iter().map(|step| step.node());
    let has_shared = nodes().any(|node| node.shares_counter);
    let mut path = String::from(&*rule.domain);
    for (node, (key, value)) in nodes().zip(entries) {
        path.push('.');
        match rule.stat_path {
            // Without a shared level, an empty value leaves its separator.
            StatPath::Detailed if !has_shared => path.extend([key, "_", value]),
            StatPath::Detailed if node.shares_counter => path.push_str(&node.composite),
            StatPath::Detailed => push_value(&mut path, key, value),
            StatPath::PerLevel if node.takes_value => push_value(&mut path, key, value),
            StatPath::PerLevel | StatPath::OfRule => path.push_str(&node.composite),
        }
    }
    Some(path.into())
}

fn push_value(path: &mut String, key: &str, value: &str) {
    path.push_str(key);
    if !value.is_empty() {
        path.extend(["_", value]);
    }
}
