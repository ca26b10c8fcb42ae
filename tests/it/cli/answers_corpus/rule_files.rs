//! Random rule files: every algorithm, every mode, every key that changes an answer.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::limits;
use super::random::Random;

/// Keys of descriptors. `k0_x` looks like key `k0` with a value that starts with `x`.
const KEYS: [&str; 8] = ["k0", "k1", "k2", "k3", "tenant", "path", "k0_x", "w*"];
const EXACT_VALUES: [&str; 6] = ["v0", "v1", "v2", "x_y", "ü", "a b"];
const WILDCARDS: [&str; 6] = ["*", "v*", "*1", "v*x", "a*b*c", "**"];
const MAX_DEPTH: usize = 4;

/// A domain, and the paths of its rule nodes.
pub struct Domain {
    pub name: String,
    /// One path per node: key and value of each level as the rule file has them. An empty value matches any value.
    pub paths: Vec<Vec<(String, String)>>,
}

/// Rule files: name and text.
pub type Files = Vec<(String, String)>;

/// Generates `count` domains. With `in_two_files`, each domain has two files, which needs `rules.merge_domains`.
pub fn generate(random: &mut Random, count: usize, in_two_files: bool) -> (Vec<Domain>, Files) {
    let mut files = Files::new();
    let mut domains = Vec::new();
    for number in 0..count {
        let name = format!("domain{number}");
        let shard_by = random.pick(&["", "shard_by: domain\n", "shard_by: descriptor\n"]);
        let mut tree = Tree { random, text: String::new(), paths: Vec::new(), limit_count: 0 };
        let mut siblings = HashSet::new();
        for part in 0..=usize::from(in_two_files) {
            tree.text = format!("domain: {name}\n{shard_by}descriptors:\n");
            for _ in 0..8 {
                tree.node(&[], &mut siblings);
            }
            files.push((format!("{name}-{part}.yaml"), std::mem::take(&mut tree.text)));
        }
        domains.push(Domain { name, paths: tree.paths });
    }
    (domains, files)
}

/// The rule tree of a domain under construction.
struct Tree<'r> {
    random: &'r mut Random,
    text: String,
    paths: Vec<Vec<(String, String)>>,
    limit_count: u64,
}

impl Tree<'_> {
    /// Adds a node below `parents`, with children. Adds nothing if `siblings` has the name of the node already.
    fn node(&mut self, parents: &[(String, String)], siblings: &mut HashSet<String>) {
        let key = self.random.pick(&KEYS);
        let value = match self.random.below(10) {
            _ if key.contains('*') => "",
            0..4 => "",
            4..7 => self.random.pick(&EXACT_VALUES),
            _ => self.random.pick(&WILDCARDS),
        };
        let composite = if value.is_empty() { key.to_owned() } else { format!("{key}_{value}") };
        if !siblings.insert(composite) {
            return;
        }
        let mut path = parents.to_vec();
        path.push((key.to_owned(), value.to_owned()));
        self.line(parents.len(), &format!("- key: \"{key}\""));
        let depth = path.len();
        if !value.is_empty() {
            self.line(depth, &format!("value: \"{value}\""));
        }
        self.flags(depth, value);
        self.rate_limits(depth);
        self.paths.push(path.clone());
        if depth < MAX_DEPTH && self.random.chance(45) {
            self.line(depth, "descriptors:");
            let mut children = HashSet::new();
            for _ in 0..self.random.between(1, 4) {
                self.node(&path, &mut children);
            }
        }
    }

    fn flags(&mut self, depth: usize, value: &str) {
        let flags = [
            (15, "shadow_mode: true"),
            (25, "quota_mode: true"),
            (4, "shard_by: domain"),
            (4, "detailed_metric: true"),
            (4, "value_to_metric: true"),
            (10, "metadata: { tier: gold, cost: 1.5, tags: [a, null, true], more: { x: 1 } }"),
        ];
        for (percent, flag) in flags {
            if self.random.chance(percent) {
                self.line(depth, flag);
            }
        }
        if value.contains('*') && self.random.chance(50) {
            self.line(depth, "share_threshold: true");
        }
    }

    fn rate_limits(&mut self, depth: usize) {
        let count = self.random.weighted(&[(15, 0), (55, 1), (20, 2), (7, 3), (3, 4)]);
        let names: Vec<_> = (0..count).map(|_| self.limit_name()).collect();
        match names.as_slice() {
            [] => {}
            [name] => {
                let limit = limits::generate(self.random, name.as_deref(), &names);
                self.line(depth, &format!("rate_limit: {limit}"));
            }
            _ => {
                self.line(depth, "rate_limits:");
                for name in &names {
                    let limit = limits::generate(self.random, name.as_deref(), &names);
                    self.line(depth, &format!("- {limit}"));
                }
            }
        }
    }

    fn limit_name(&mut self) -> Option<String> {
        self.limit_count += 1;
        self.random.chance(60).then(|| format!("limit{}", self.limit_count))
    }

    /// Adds a line of a node. Fields are indented two columns more than the dash that starts the node.
    fn line(&mut self, depth: usize, text: &str) {
        let columns = 4 * depth + if text.starts_with("- key") { 2 } else { 0 };
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{:columns$}{text}", "");
    }
}
