//! Checks that what exceptions mention exists in the rules: domains, keys, paths, limit names and tiers.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher as _};
use std::iter;
use std::sync::Arc;

use engine::{Effect, ExceptionRow, Limit, Node, RowSource, RowTerms, Rule, RuleSet, TierRow, composite};

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
        let RowTerms { domain, key, path, limit_name, effect, .. } = &*row.terms;
        let Effect { tier, block, add, .. } = effect;
        let of_effect = (tier, block, add.is_some());
        let named = format!("{:?}", (row.source.name(), domain, key, path, limit_name, of_effect));
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
pub fn check_against_rules(loaded: &LoadedExceptions, rules: &RuleSet) -> Problems {
    let mut problems = ProblemCollector::default();
    loaded.warnings.all().iter().cloned().for_each(|problem| problems.push(problem));
    for mention in &loaded.mentions.list {
        if let Some(mut reason) = missing_in_rules(&mention.row, rules) {
            if mention.rows > 1 {
                reason = format!("{reason} ({} rows)", mention.rows);
            }
            let location = match &mention.row.source {
                RowSource::File { file, line } => Location::line(Arc::clone(file), *line),
                RowSource::Live { id, .. } => Location::file(Arc::clone(id)),
            };
            problems.push(Problem::warning(location, reason));
        }
    }
    let names: Vec<_> = loaded.files.iter().map(|file| Arc::clone(&file.name)).collect();
    Problems::sorted(problems, &names)
}

/// Returns why the row is without effect under these rules: what it mentions that they lack.
pub fn missing_in_rules(row: &ExceptionRow, rules: &RuleSet) -> Option<String> {
    if !rules.domains().any(|domain| row.domain.matches(domain)) {
        return Some("no domain of the rules matches 'domain'".to_owned());
    }
    let with_key = rules_with_key(row, rules);
    if with_key.is_empty() {
        let effect = if row.effect.block {
            "the row blocks only requests that no rule is for"
        } else {
            "the row changes nothing"
        };
        return Some(format!("no rule of the domain has the key '{}': {effect}", row.key));
    }
    let limits = named_limits(row, &with_key);
    if limits.is_empty() {
        return Some("no limit of the domain matches 'path' and 'limit_name'".to_owned());
    }
    if row.effect.add.is_some() && latest_end(&limits, 0).is_none() {
        return Some(
            "no limit that the row applies to has the algorithm 'fixed_window', which 'add' needs".into(),
        );
    }
    let tier = row.effect.tier.as_ref()?;
    let has_tier = limits.iter().any(|limit| limit.tier(tier).is_some());
    (!has_tier).then(|| format!("no limit that the row applies to has the tier '{tier}'"))
}

/// Returns the latest end of the windows at `now_us` in which `row` can grant units (microseconds since the epoch);
/// `None` if the rules lack a limit with such a window.
pub fn latest_window_end(row: &ExceptionRow, rules: &RuleSet, now_us: u64) -> Option<u64> {
    latest_end(&named_limits(row, &rules_with_key(row, rules)), now_us)
}

fn latest_end(limits: &[&Arc<Limit>], now_us: u64) -> Option<u64> {
    let with_tiers =
        limits.iter().flat_map(|limit| iter::once(*limit).chain(limit.tiers.iter().map(|tier| &tier.limit)));
    with_tiers.filter_map(|limit| limit.window_at(now_us)).map(|(_, end_us)| end_us).max()
}

/// Returns the limits of these rules that match the row's path and limit name.
fn named_limits<'r>(row: &ExceptionRow, with_key: &[&'r Arc<Rule>]) -> Vec<&'r Arc<Limit>> {
    let has_path = |rule: &&&Arc<Rule>| row.path.matches(rule.path_in_domain());
    let limits = with_key.iter().filter(has_path).flat_map(|rule| &rule.limits);
    limits.filter(|limit| row.limit_name.matches(limit.name())).collect()
}

/// Returns the rules for requests with the row's key in an entry.
fn rules_with_key<'r>(row: &ExceptionRow, rules: &'r RuleSet) -> Vec<&'r Arc<Rule>> {
    let start = composite(&row.key, "") + "_";
    // A wildcard matches key and value together.
    let may_have_key = |node: &Node| {
        // The part before its first star.
        let fixed = node.composite.split_once('*').map(|(fixed, _)| fixed);
        let may_match = |fixed: &str| fixed.starts_with(&start) || start.starts_with(fixed);
        *node.key == *row.key || fixed.is_some_and(may_match)
    };
    let domains = rules.domains().filter(|domain| row.domain.matches(domain));
    let roots = domains.filter_map(|domain| rules.domain(domain)).map(|domain| (&domain.root, false));
    let mut nodes: Vec<(&Node, bool)> = roots.collect();
    let mut found = Vec::new();
    while let Some((node, has_key)) = nodes.pop() {
        found.extend(node.rule.iter().filter(|_| has_key));
        nodes.extend(node.children().map(|child| (child, has_key || may_have_key(child))));
    }
    found
}
