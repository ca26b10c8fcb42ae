//! Checks that need more than one descriptor: repeated nodes, nodes that nothing can reach, names of limits.

use std::collections::HashMap;

use crate::engine::Pattern;

use super::problem::{Place, Problem};
use super::read::{DomainDraft, LimitDraft, NodeDraft};

/// Each node is compared with that many wildcards of its level; enough for rules that people write, and it keeps the
/// check linear for those that nobody wrote.
const WILDCARDS_COMPARED: usize = 256;

/// Stands for any text in place of a `*`. Unassigned for ever, so no pattern spells it.
const ANY: &str = "\u{10FFFF}";

/// What is wrong with a domain as a whole.
pub(super) fn check(domain: &DomainDraft) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_level(&domain.nodes, &domain.name, &mut problems);
    check_names(domain, &mut problems);
    problems
}

fn check_level(nodes: &[NodeDraft], path: &str, problems: &mut Vec<Problem>) {
    let mut firsts: HashMap<String, &Place> = HashMap::new();
    let wildcards = Wildcards::of(nodes);
    for (index, node) in nodes.iter().enumerate() {
        let composite = node.spec.composite();
        let path = format!("{path}.{composite}");
        if let Some(first) = firsts.get(&composite) {
            let reason = format!("duplicate descriptor composite key '{path}', first on {first}");
            problems.push(Problem::error(node.place.clone(), reason));
        } else if let Some(reason) = wildcards.why_never(index, node, &composite) {
            problems.push(Problem::warning(node.place.clone(), reason));
        }
        if is_idle(node, &composite) {
            let reason = "does nothing: it has no value to exempt, no limit and no descriptors";
            problems.push(Problem::warning(node.place.clone(), reason));
        }
        problems.extend(share_a_label(&node.limits));
        firsts.entry(composite).or_insert(&node.place);
        check_level(&node.nodes, &path, problems);
    }
}

/// Whether a node could as well be left out. One with a value, or with a star in its key, exempts what it matches.
fn is_idle(node: &NodeDraft, composite: &str) -> bool {
    let says_nothing = node.spec.value.is_empty() && !node.names_limits && node.nodes.is_empty();
    says_nothing && !composite.contains('*') && !node.has_errors
}

/// A limit without a name goes by its rule's path, so several of one rule cannot be told apart.
fn share_a_label(limits: &[LimitDraft]) -> Option<Problem> {
    let mut unnamed = limits.iter().filter(|limit| limit.spec.name.is_none() && !limit.spec.unlimited);
    let (first, second) = (unnamed.next()?, unnamed.next()?);
    let reason =
        format!("neither this limit nor the one on {} has a name: metrics take both for one", first.place);
    Some(Problem::warning(second.place.clone(), reason))
}

/// The wildcards of one level, in order.
struct Wildcards<'n>(Vec<Wildcard<'n>>);

struct Wildcard<'n> {
    /// Its place among the nodes of the level.
    index: usize,
    pattern: Pattern,
    place: &'n Place,
}

impl<'n> Wildcards<'n> {
    fn of(nodes: &'n [NodeDraft]) -> Self {
        let wildcards = nodes.iter().enumerate().filter_map(|(index, node)| {
            let pattern = Pattern::new(&node.spec.composite())?;
            Some(Wildcard { index, pattern, place: &node.place })
        });
        Self(wildcards.take(WILDCARDS_COMPARED).collect())
    }

    /// Why nothing can reach a node. An exact node can always be reached; a wildcard is out of reach when an earlier
    /// one covers it, a key without a value when any wildcard covers all its values.
    fn why_never(&self, index: usize, node: &NodeDraft, composite: &str) -> Option<String> {
        let (all_texts, before) = if composite.contains('*') {
            (composite.replace('*', ANY), index)
        } else if node.spec.value.is_empty() {
            (format!("{}_{ANY}", node.spec.key), usize::MAX)
        } else {
            return None;
        };
        let covering = self
            .0
            .iter()
            .take_while(|wildcard| wildcard.index < before)
            .find(|wildcard| wildcard.pattern.matches(&all_texts))?;
        Some(format!(
            "never matches: wildcard '{}' on {} is tried before it and covers it",
            covering.pattern.text(),
            covering.place
        ))
    }
}

fn check_names(domain: &DomainDraft, problems: &mut Vec<Problem>) {
    let mut limits = Vec::new();
    collect_limits(&domain.nodes, &mut limits);
    let mut firsts: HashMap<&str, &Place> = HashMap::new();
    for limit in &limits {
        let Some(name) = limit.spec.name.as_deref() else {
            continue;
        };
        if let Some(first) = firsts.get(name) {
            let reason = format!(
                "limit name '{name}' is also given on {first}: metrics and replaces take both for one"
            );
            problems.push(Problem::warning(limit.place.clone(), reason));
        }
        firsts.entry(name).or_insert(&limit.place);
    }
    for limit in &limits {
        for name in limit.spec.replaces.iter().filter(|name| !firsts.contains_key(name.as_str())) {
            let reason = format!("replaces '{name}', but no limit of domain '{}' has that name", domain.name);
            problems.push(Problem::warning(limit.place.clone(), reason));
        }
    }
}

fn collect_limits<'n>(nodes: &'n [NodeDraft], limits: &mut Vec<&'n LimitDraft>) {
    for node in nodes {
        limits.extend(&node.limits);
        collect_limits(&node.nodes, limits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_covers_another_when_it_matches_it_with_any_text_for_stars() {
        let table = [
            // pattern, other, covers
            ("k_*", "k_a*", true),
            ("k_a*", "k_*", false),
            ("k_*", "k_*b", true),
            ("k_a*b", "k_ab*b", true),
            ("k_a*", "k_a*b*c", true),
            ("k_a*c", "k_a*b", false),
            ("k_*", "k_**", true),
            ("k_**", "k_*", true), // both cover the same texts
            ("*", "k_*", true),
        ];
        for (pattern, other, covers) in table {
            let compiled = Pattern::new(pattern).expect("has a star");
            assert_eq!(compiled.matches(&other.replace('*', ANY)), covers, "{pattern} over {other}");
        }
    }
}
