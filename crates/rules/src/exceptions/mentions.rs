//! Checks that what exceptions mention exists in the rules: domains, keys, paths, limit names and tiers.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher as _};
use std::sync::Arc;

use engine::{ExceptionRow, Node, RowSource, Rule, RuleSet, TierRow, composite};

use super::LoadedExceptions;
use crate::problem::{Location, Problem, ProblemCollector, Problems};

/// Distinct pairs of domain and key in CSV files. More of them mean that two columns are swapped.
const MAX_PAIRS: usize = 1_000;
/// Mentions compared with the rules. Rows beyond that are not checked.
const MAX_MENTIONS: usize = 10_000;

/// What rows mention, each with the first row that does.
#[derive(Debug, Default)]
pub(super) struct Mentions {
    list: Vec<Mention>,
    /// By a hash of the mention.
    indexes: HashMap<u64, usize>,
    /// Hashes of the pairs of domain and key in CSV files.
    pairs: HashSet<u64>,
    /// The hash of the last CSV row, which usually recurs in the next one.
    last: Option<(u64, usize)>,
}

#[derive(Debug)]
struct Mention {
    row: ExceptionRow,
    rows: u64,
}

impl Mentions {
    /// Adds a row of a CSV file: `named` is what it mentions, and `row` builds it.
    ///
    /// # Errors
    /// Why CSV files cannot mention so much.
    pub fn add_tier_row(
        &mut self,
        named: TierRow<'_>,
        row: impl FnOnce() -> ExceptionRow,
    ) -> Result<(), String> {
        let TierRow { file, domain, key, tier, .. } = named;
        let hash = hash_of(&(&**file, domain, key, tier));
        if let Some((_, index)) = self.last.filter(|(last, _)| *last == hash) {
            self.list[index].rows += 1;
            return Ok(());
        }
        self.pairs.insert(hash_of(&(domain, key)));
        if self.pairs.len() > MAX_PAIRS {
            return Err(format!(
                "more than {MAX_PAIRS} different pairs of domain and key: are the columns in order?"
            ));
        }
        self.last = self.count(hash, row).map(|index| (hash, index));
        Ok(())
    }

    /// Adds a row of a YAML file.
    pub fn add_row(&mut self, row: &ExceptionRow) {
        let ExceptionRow { source, domain, key, path, limit_name, effect, .. } = row;
        let named =
            format!("{:?}", (&source.file, domain, key, path, limit_name, &effect.tier, effect.block));
        self.count(hash_of(&named), || row.clone());
    }

    fn count(&mut self, hash: u64, row: impl FnOnce() -> ExceptionRow) -> Option<usize> {
        let known = self.list.len();
        if known == MAX_MENTIONS && !self.indexes.contains_key(&hash) {
            return None;
        }
        let index = *self.indexes.entry(hash).or_insert(known);
        if index == known {
            self.list.push(Mention { row: row(), rows: 0 });
        }
        self.list[index].rows += 1;
        Some(index)
    }
}

fn hash_of(named: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    named.hash(&mut hasher);
    hasher.finish()
}

/// Returns the warnings about the rows, and mentions that the rules lack: such a row has no effect.
#[must_use]
pub fn check_against_rules(loaded: &LoadedExceptions, rules: &RuleSet) -> Problems {
    let mut problems = ProblemCollector::default();
    loaded.warnings.all().iter().cloned().for_each(|problem| problems.push(problem));
    for mention in &loaded.mentions.list {
        if let Some(mut reason) = mention.missing(rules) {
            if mention.rows > 1 {
                reason = format!("{reason} ({} rows)", mention.rows);
            }
            let RowSource { file, line } = &mention.row.source;
            problems.push(Problem::warning(Location::line(Arc::clone(file), *line), reason));
        }
    }
    let names: Vec<_> = loaded.files.iter().map(|file| Arc::clone(&file.name)).collect();
    Problems::sorted(problems, &names)
}

impl Mention {
    /// What the rules lack.
    fn missing(&self, rules: &RuleSet) -> Option<String> {
        let mut domains = rules.domains().filter(|domain| self.row.domain.matches(domain)).peekable();
        if domains.peek().is_none() {
            return Some("no domain of the rules matches 'domain'".to_owned());
        }
        let mut roots = domains.filter_map(|domain| rules.domain(domain)).map(|domain| &domain.root);
        if !roots.any(|root| may_have_key(root, &self.row.key)) {
            let effect = if self.row.effect.block {
                "the row blocks only requests that no rule is for"
            } else {
                "the row changes nothing"
            };
            return Some(format!("no rule of the domain has the key '{}': {effect}", self.row.key));
        }
        let named: Vec<&Arc<Rule>> = rules.rules().iter().filter(|rule| self.names_rule(rule)).collect();
        if named.is_empty() {
            return Some("no limit of the domain matches 'path' and 'limit_name'".to_owned());
        }
        let tier = self.row.effect.tier.as_ref()?;
        let limits = || named.iter().flat_map(|rule| &rule.limits);
        let has_tier = limits().any(|limit| limit.tier(tier).is_some());
        (!has_tier).then(|| format!("no limit that the row applies to has the tier '{tier}'"))
    }

    fn names_rule(&self, rule: &Rule) -> bool {
        let mut names = rule.limits.iter().map(|limit| limit.name());
        self.row.domain.matches(&rule.domain)
            && self.row.path.matches(rule.path_in_domain())
            && names.any(|name| self.row.limit_name.matches(name))
    }
}

/// `true` if an entry with this key can match a node below `node`. A wildcard matches key and value together.
fn may_have_key(node: &Node, key: &str) -> bool {
    let start = composite(key, "") + "_";
    let mut nodes: Vec<&Node> = node.children().collect();
    while let Some(node) = nodes.pop() {
        // The part of a wildcard before its first star.
        let fixed = node.composite.split_once('*').map(|(fixed, _)| fixed);
        let may_match = |fixed: &str| fixed.starts_with(&start) || start.starts_with(fixed);
        if *node.key == *key || fixed.is_some_and(may_match) {
            return true;
        }
        nodes.extend(node.children());
    }
    false
}
