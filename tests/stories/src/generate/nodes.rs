//! Random rule trees, and the entries that meet their nodes.

use serde_json::json;

use super::Plot;
use crate::story::{Node, RuleFile};

/// Keys of the first level. `tenant_v` looks like the key `tenant` with a value that starts with `v`.
const KEYS: [&str; 5] = ["tenant", "user", "path", "tenant_v", "w*"];
const EXACT: [&str; 3] = ["v1", "x_y", "ü b"];
const WILDCARDS: [&str; 4] = ["*", "v*", "*1", "v*x"];
/// Values of requests. Some are escaped or hashed in the key of a counter.
const VALUES: [(u64, &str); 6] = [
    (40, "v1"),
    (20, "v2"),
    (5, "10.1.2.3"),
    (3, ""),
    (3, "|{}%#=\u{1}ü"),
    (3, "a-long-value-that-does-not-fit-into-a-part-of-a-key-and-is-hashed-1"),
];

impl Plot {
    pub(super) fn rule_files(&mut self) -> Vec<RuleFile> {
        let mut files = vec![self.rule_file("d")];
        if self.random.chance(12) {
            files.push(self.rule_file("e"));
        }
        files
    }

    fn rule_file(&mut self, domain: &str) -> RuleFile {
        let shard_by = self.random.pick(&[None, None, None, Some("domain"), Some("descriptor")]);
        let mut descriptors: Vec<Node> = Vec::new();
        for _ in 0..self.random.weighted(&[(5, 1), (4, 2), (2, 3)]) {
            self.node(&mut descriptors, 0);
        }
        let file = RuleFile { domain: domain.to_owned(), shard_by: shard_by.map(str::to_owned), descriptors };
        for node in &file.descriptors {
            self.add_paths(&[], node);
        }
        file
    }

    /// Adds a node to its level, unless the level has it.
    fn node(&mut self, level: &mut Vec<Node>, depth: usize) {
        let is_tier = depth > 0 && self.random.chance(55);
        let key = if is_tier { "plan" } else { self.random.pick(&KEYS) };
        let value = match self.random.below(10) {
            _ if is_tier || key.contains('*') => None,
            0..6 => None,
            6..8 => Some(self.random.pick(&EXACT).to_owned()),
            _ => Some(self.random.pick(&WILDCARDS).to_owned()),
        };
        let is_wildcard = value.as_ref().is_some_and(|value| value.contains('*'));
        let count = self.random.weighted(&[(2, 0), (9, 1), (6, 2), (3, 3)]);
        let mut limits = self.rule_limits(if is_tier { count.max(1) } else { count });
        let single = self.random.chance(80) && limits.len() == 1;
        let rate_limit = if single { limits.pop() } else { None };
        let chance = |plot: &mut Self, percent| plot.random.chance(percent);
        let mut node = Node {
            key: key.to_owned(),
            rate_limit,
            rate_limits: limits,
            shadow_mode: chance(self, 8),
            quota_mode: chance(self, 12),
            detailed_metric: chance(self, 3),
            value_to_metric: chance(self, 3),
            share_threshold: is_wildcard && chance(self, 60),
            secret: value.is_none() && !is_tier && !key.contains('*') && chance(self, 6),
            tier: is_tier,
            shard_by: chance(self, 5)
                .then(|| self.random.pick(&["domain", "descriptor", "first_entry"]).to_owned()),
            metadata: chance(self, 4).then(|| json!({ "cost": 1.5, "tags": ["a"] })),
            value,
            descriptors: Vec::new(),
        };
        if depth < 2 && chance(self, 45) {
            for _ in 0..self.random.between(1, 2) {
                self.node(&mut node.descriptors, depth + 1);
            }
        }
        if !level.iter().any(|other| other.composite() == node.composite()) {
            level.push(node);
        }
    }

    /// Adds entries that end at the node, and at those below it, to the pool.
    fn add_paths(&mut self, parents: &[(String, String)], node: &Node) {
        let text = |plot: &mut Self, pattern: &str| pattern.replace('*', plot.random.pick(&["", "1", "v2"]));
        let key = text(self, &node.key);
        let values: Vec<String> = match &node.value {
            _ if node.tier => ["pro", "low", "suspended"].map(str::to_owned).to_vec(),
            Some(value) => vec![text(self, value)],
            None => {
                (0..self.random.between(1, 2)).map(|_| self.random.weighted(&VALUES).to_owned()).collect()
            }
        };
        for value in values {
            let entries = [parents, &[(key.clone(), value)]].concat();
            for child in &node.descriptors {
                self.add_paths(&entries, child);
            }
            if self.pool.len() < 12 {
                self.pool.push(entries);
            }
        }
    }
}
