//! Checks a whole domain: repeated and unreachable nodes, limit names, values that look like credentials, and size.

use std::collections::{HashMap, HashSet};

use engine::{NodeSpec, Pattern};

use super::credentials::{is_like_credential, without_value};
use super::mistyped::mistyped_reason;
use super::problem::{Location, Problem, ProblemCollector};
use super::read::{DomainDraft, LimitDraft, NodeDraft};

/// A node is compared with at most this many wildcards of its level. That is enough for hand-written files, and keeps
/// the check linear for generated ones.
const MAX_WILDCARDS_COMPARED: usize = 256;

/// Total bytes of a domain's paths. Each rule stores its path, and every path repeats the domain and the levels above
/// it, so a file of a few MiB could have gigabytes of paths.
const MAX_PATH_BYTES: usize = 32 << 20;

/// A piece is the string between two stars of a wildcard. Text that contains the piece of `*/v1*` also contains that of
/// `*1*`, and matching visits each, so the time per value would grow with the number of pieces that are suffixes of
/// each other. At most this many pieces of one level may be. Different words never are.
const MAX_NESTED_PIECES: usize = 16;

const CREDENTIAL_REASON: &str = "the value looks like a credential, and values of rules are public: in metrics, on the \
    admin pages and in counter keys; let the caller send the name of the client instead, or set secret: true";

const OPEN_WILDCARD: &str = "each value that this wildcard matches has its own counter, so a caller that varies the \
    value, such as /a?x=1 and /a?x=2, gets the whole limit each time; write 'share_threshold: true' for one counter of \
    all these values, or 'share_threshold: false' if each value should have its own";

/// Replaces a `*` as an example of any string: a noncharacter of Unicode, which no real pattern contains.
const ANY_TEXT: &str = "\u{10FFFF}";

/// Reports problems that only show once all descriptors of a domain are known.
pub(super) fn check_domain(domain: &DomainDraft, problems: &mut ProblemCollector) {
    let mut secret_keys = HashSet::new();
    collect_secret_keys(&domain.nodes, &mut secret_keys);
    let mut check = LevelCheck { problems, secret_keys, path_bytes: 0 };
    if check.check_level(&domain.nodes, &domain.name).is_ok() {
        check_names(domain, problems);
    }
}

fn collect_secret_keys<'n>(nodes: &'n [NodeDraft], keys: &mut HashSet<&'n str>) {
    for node in nodes {
        if node.spec.secret {
            keys.insert(node.spec.key.as_str());
        }
        collect_secret_keys(&node.nodes, keys);
    }
}

struct LevelCheck<'p, 'n> {
    problems: &'p mut ProblemCollector,
    /// Keys whose values problems must not quote.
    secret_keys: HashSet<&'n str>,
    /// Total bytes of the paths checked so far.
    path_bytes: usize,
}

/// The paths are too long: reported, and not checked further.
struct LongPaths;

impl LevelCheck<'_, '_> {
    fn check_level(&mut self, nodes: &[NodeDraft], path: &str) -> Result<(), LongPaths> {
        let mut firsts: HashMap<String, &Location> = HashMap::new();
        let wildcards = wildcards_of(nodes);
        for (index, node) in nodes.iter().enumerate() {
            let composite = node.spec.composite();
            self.add_path(path.len() + composite.len(), &node.location)?;
            let path = format!("{path}.{}", self.shown_composite(node));
            if let Some(first) = firsts.get(&composite) {
                let reason = format!("duplicate descriptor composite key '{path}', first on {first}");
                self.problems.push(Problem::error(node.location.clone(), reason));
            } else if let Some(reason) = unreachable_reason(nodes, index, &composite, &wildcards) {
                self.problems.push(Problem::warning(node.location.clone(), reason));
            }
            if has_no_effect(node, &composite) {
                let reason = "this descriptor does nothing: it has no value, no limit and no descriptors";
                self.problems.push(Problem::warning(node.location.clone(), reason));
            }
            if node.spec.tier && !has_tiers(node) {
                let reason = "tier does nothing: no limit of this descriptor, or below it, has tiers";
                self.problems.push(Problem::warning(node.location.clone(), reason));
            }
            self.check_value(node);
            if let Some(problem) = same_label(&node.limits) {
                self.problems.push(problem);
            }
            firsts.entry(composite).or_insert(&node.location);
            self.check_level(&node.nodes, &path)?;
        }
        self.check_pieces(nodes, &wildcards);
        Ok(())
    }

    /// The value of a secret key may be any string, and no problem quotes it.
    fn check_value(&mut self, node: &NodeDraft) {
        let NodeSpec { key, value, .. } = &node.spec;
        let is_secret = self.secret_keys.contains(key.as_str());
        let (location, reason) = if !is_secret && is_like_credential(key, value) {
            (node.location.clone(), CREDENTIAL_REASON.to_owned())
        } else if !is_secret && let Some(reason) = mistyped_reason(value) {
            (node.value_location(), reason)
        } else if value.contains('*') && !node.names_share_threshold && counts(node) {
            (node.value_location(), OPEN_WILDCARD.to_owned())
        } else {
            return;
        };
        self.problems.push(Problem::warning(location, reason));
    }

    fn shown_composite(&self, node: &NodeDraft) -> String {
        let is_value = !node.spec.value.is_empty() && !node.spec.value.contains('*');
        let is_secret = is_value && self.secret_keys.contains(node.spec.key.as_str());
        if is_secret { without_value(&node.spec.key) } else { node.spec.composite() }
    }

    fn check_pieces(&mut self, nodes: &[NodeDraft], wildcards: &[(usize, Pattern)]) {
        if let Some(index) = too_deep(wildcards) {
            let reason = format!(
                "a part of this wildcard between two stars ends with {MAX_NESTED_PIECES} or more such parts of this \
                 wildcard and of others beside it: matching would take too long"
            );
            self.problems.push(Problem::error(nodes[index].location.clone(), reason));
        }
    }

    fn add_path(&mut self, bytes: usize, location: &Location) -> Result<(), LongPaths> {
        self.path_bytes = self.path_bytes.saturating_add(bytes);
        if self.path_bytes <= MAX_PATH_BYTES {
            return Ok(());
        }
        let reason = format!(
            "the paths of the descriptors, such as domain.key_value.key_value, have more than {MAX_PATH_BYTES} bytes \
             together; shorten the domain, or the keys and values of upper levels"
        );
        self.problems.push(Problem::error(location.clone(), reason));
        Err(LongPaths)
    }
}

/// `true` if the node, or one below it, has a limit with counters.
fn counts(node: &NodeDraft) -> bool {
    node.limits.iter().any(|draft| draft.limit.has_counter()) || node.nodes.iter().any(counts)
}

/// `true` if the node can be removed without effect. A node with a value, or with a star in its key, exempts the
/// entries that it matches; a secret node makes the values of its key secret.
fn has_no_effect(node: &NodeDraft, composite: &str) -> bool {
    let is_empty = node.spec.value.is_empty() && !node.names_limits && node.nodes.is_empty();
    is_empty && !node.spec.secret && !composite.contains('*') && !node.has_errors
}

fn has_tiers(node: &NodeDraft) -> bool {
    // A limit with an error may have tiers.
    let here = node.has_errors || node.limits.iter().any(|draft| !draft.limit.spec.tiers.is_empty());
    here || node.nodes.iter().any(has_tiers)
}

/// Limits without a name are labelled with the path of their rule, so two of them in one rule have the same label.
fn same_label(limits: &[LimitDraft]) -> Option<Problem> {
    let unnamed = limits.iter().map(|draft| (draft, &draft.limit.spec));
    let mut unnamed =
        unnamed.filter(|(_, spec)| spec.name.is_none() && !spec.unlimited).map(|(draft, _)| draft);
    let (first, second) = (unnamed.next()?, unnamed.next()?);
    let reason = format!(
        "this limit and the one on {} have no name, so they share one metric; give each a name",
        first.location
    );
    Some(Problem::warning(second.location.clone(), reason))
}

/// The wildcards of one level in order, each with its node's index.
fn wildcards_of(nodes: &[NodeDraft]) -> Vec<(usize, Pattern)> {
    let pattern = |(index, node): (usize, &NodeDraft)| Some((index, Pattern::new(&node.spec.composite())?));
    nodes.iter().enumerate().filter_map(pattern).collect()
}

/// Why no entry can reach the node at `index`. An exact node is always reachable. A wildcard is unreachable if an
/// earlier one covers it; a key without a value is unreachable if any wildcard covers all its values.
fn unreachable_reason(
    nodes: &[NodeDraft],
    index: usize,
    composite: &str,
    wildcards: &[(usize, Pattern)],
) -> Option<String> {
    let (all_texts, before) = if composite.contains('*') {
        (composite.replace('*', ANY_TEXT), index)
    } else if nodes[index].spec.value.is_empty() {
        (format!("{}_{ANY_TEXT}", nodes[index].spec.key), usize::MAX)
    } else {
        return None;
    };
    let mut compared = wildcards.iter().take(MAX_WILDCARDS_COMPARED).take_while(|(index, _)| *index < before);
    let (covering, pattern) = compared.find(|(_, pattern)| pattern.matches(&all_texts))?;
    let location = &nodes[*covering].location;
    Some(format!(
        "never matches: wildcard '{}' on {location} is tried before it and covers it",
        pattern.text()
    ))
}

fn check_names(domain: &DomainDraft, problems: &mut ProblemCollector) {
    let mut limits = Vec::new();
    collect_limits(&domain.nodes, &mut limits);
    let mut firsts: HashMap<&str, &LimitDraft> = HashMap::new();
    for limit in &limits {
        let Some(name) = limit.limit.spec.name.as_deref() else {
            continue;
        };
        let first = *firsts.entry(name).or_insert(limit);
        if !is_same_definition(first, limit) {
            let reason = format!(
                "limit name '{name}' is also used on {}: metrics and replaces do not distinguish the two limits; give \
                 each limit its own name",
                first.location
            );
            problems.push(Problem::warning(limit.location.clone(), reason));
        }
    }
    for limit in &limits {
        for name in limit.limit.spec.replaces.iter().filter(|name| !firsts.contains_key(name.as_str())) {
            let reason = format!("replaces '{name}', but no limit of domain '{}' has that name", domain.name);
            problems.push(Problem::warning(limit.location.clone(), reason));
        }
        let own = limit.limit.spec.name.as_deref();
        let replaced = limit.limit.spec.replaces.iter().filter_map(|name| firsts.get(name.as_str()));
        let is_back =
            |other: &&&LimitDraft| other.limit.spec.replaces.iter().any(|name| Some(name.as_str()) == own);
        for other in replaced.filter(is_back) {
            let reason = format!(
                "this limit and the one on {} replace each other: a request that matches both has neither",
                other.location
            );
            problems.push(Problem::warning(limit.location.clone(), reason));
        }
    }
}

/// `true` if a file defines the limit once and reuses it through an anchor: the same limit on the same line. A limit
/// that changes part of an anchor with a merge key has its own line.
fn is_same_definition(one: &LimitDraft, other: &LimitDraft) -> bool {
    let (first, second) = (&one.location, &other.location);
    let is_same_line = first.line.is_some() && first.line == second.line && first.file == second.file;
    first == second || is_same_line && one.limit == other.limit
}

fn collect_limits<'n>(nodes: &'n [NodeDraft], limits: &mut Vec<&'n LimitDraft>) {
    for node in nodes {
        limits.extend(&node.limits);
        collect_limits(&node.nodes, limits);
    }
}

/// The index of a pattern with a piece that has too many other pieces of the level as suffixes; `None` if there is
/// none.
fn too_deep(patterns: &[(usize, Pattern)]) -> Option<usize> {
    let reversed = |piece: &str| piece.bytes().rev().collect::<Vec<u8>>();
    let mut pieces: Vec<(Vec<u8>, usize)> = patterns
        .iter()
        .flat_map(|(index, pattern)| pattern.pieces().map(move |piece| (reversed(piece), *index)))
        .collect();
    // Reversed, a piece starts with its suffixes and sorts after them.
    pieces.sort_unstable();
    pieces.dedup_by(|later, earlier| later.0 == earlier.0);
    let mut nested: Vec<&[u8]> = Vec::new();
    for (piece, index) in &pieces {
        while nested.last().is_some_and(|outer| !piece.starts_with(outer)) {
            nested.pop();
        }
        nested.push(piece);
        if nested.len() > MAX_NESTED_PIECES {
            return Some(*index);
        }
    }
    None
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
            ("k_**", "k_*", true), // both cover the same strings
            ("*", "k_*", true),
        ];
        for (pattern, other, covers) in table {
            let compiled = Pattern::new(pattern).expect("has a star");
            assert_eq!(compiled.matches(&other.replace('*', ANY_TEXT)), covers, "{pattern} over {other}");
        }
    }

    fn too_deep_in(texts: &[String]) -> Option<usize> {
        let patterns: Vec<_> =
            texts.iter().map(|text| Pattern::new(text).expect("has a star")).enumerate().collect();
        too_deep(&patterns)
    }

    #[test]
    fn sixteen_pieces_may_end_with_each_other() {
        let nested = |count: usize| (1..=count).map(|length| format!("k_*{}*", "a".repeat(length)));
        let (at_bound, above): (Vec<_>, Vec<_>) = (nested(16).collect(), nested(17).collect());
        assert_eq!(too_deep_in(&at_bound), None);
        assert_eq!(too_deep_in(&above), Some(16));
        // The same pieces in several patterns, or in one.
        assert_eq!(too_deep_in(&[at_bound.clone(), at_bound.clone()].concat()), None);
        assert!(too_deep_in(&[above.concat()]).is_some());
        // Pieces with common prefixes do not end together.
        let prefixes: Vec<_> = (1..100).map(|length| format!("k_*b{}*", "a".repeat(length))).collect();
        assert_eq!(too_deep_in(&prefixes), None);
    }
}
