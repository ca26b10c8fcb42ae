//! Walks a descriptor down the rule tree, exactly as `envoyproxy/ratelimit` does (its `GetLimit`): at each level the
//! exact `key_value`, else the wildcards in the order of the file, else the key alone; no going back; a rule counts
//! only where the descriptor ends.

use smallvec::SmallVec;

use super::{DomainRules, Entry, Node};

/// How one entry was matched.
#[derive(Clone, Copy, Debug)]
pub enum Step<'r> {
    /// `key_value` stands in the file.
    Exact(&'r Node),
    /// A wildcard covers it.
    Wildcard(&'r Node),
    /// The key stands in the file without a value.
    Default(&'r Node),
}

impl<'r> Step<'r> {
    /// The node reached.
    #[must_use]
    pub fn node(self) -> &'r Node {
        match self {
            Self::Exact(node) | Self::Wildcard(node) | Self::Default(node) => node,
        }
    }
}

/// How far a descriptor got.
#[derive(Clone, Debug, Default)]
pub struct Walk<'r> {
    /// One step per entry matched, in order.
    pub steps: SmallVec<[Step<'r>; 4]>,
    /// The node the whole descriptor ends at, if it got that far.
    pub end: Option<&'r Node>,
}

impl DomainRules {
    /// Walks `entries` down the tree. `scratch` saves the walk an allocation per entry.
    #[must_use]
    pub fn walk<'r>(&'r self, entries: &[Entry], scratch: &mut String) -> Walk<'r> {
        let mut found = Walk::default();
        let mut node = &self.root;
        for entry in entries {
            let Some(step) = step(node, entry, scratch) else {
                return found;
            };
            node = step.node();
            found.steps.push(step);
        }
        found.end = (!entries.is_empty()).then_some(node);
        found
    }
}

fn step<'r>(node: &'r Node, entry: &Entry, scratch: &mut String) -> Option<Step<'r>> {
    scratch.clear();
    scratch.push_str(&entry.key);
    scratch.push('_');
    scratch.push_str(&entry.value);
    if let Some(child) = node.child(scratch) {
        return Some(Step::Exact(child));
    }
    if let Some(child) = node.wildcard_child(scratch) {
        return Some(Step::Wildcard(child));
    }
    node.child(&entry.key).map(Step::Default)
}
