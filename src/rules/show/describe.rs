//! Why a request meets the limits that it meets, or none: the nodes that were walked, the limits with their
//! parameters, the keys of their counters.

use std::fmt::Write as _;

use crate::engine::{
    Descriptor, DomainRules, Entry, Limit, LimitId, Node, PlanError, Quantity, Request, Rule, RuleSet, Step,
    Walk,
};

use super::describe_limit;

/// A request explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// For a person to read, lines ended by `\n`.
    pub text: String,
    /// How many descriptors meet at least one limit that is not replaced.
    pub matched: usize,
}

/// Explains what `rules` say to `request`, descriptor by descriptor. Limits that come with the request are left out of
/// account: they need no rule.
///
/// # Errors
/// [`PlanError`] when the engine cannot plan the request.
pub fn describe(rules: &RuleSet, request: &Request) -> Result<Description, PlanError> {
    let mut description = Description { text: String::new(), matched: 0 };
    let Some(domain) = rules.domain(&request.domain) else {
        unknown_domain(&mut description.text, rules, &request.domain);
        return Ok(description);
    };
    let replaced = Replaced::by(domain, request);
    for descriptor in &request.descriptors {
        let keys = keys(rules, request, descriptor)?;
        let walk = Explanation { domain, descriptor, keys };
        if walk.explain(&mut description.text, &replaced) {
            description.matched += 1;
        }
    }
    Ok(description)
}

/// Writes a line. Writing to a String cannot fail.
macro_rules! say {
    ($out:expr, $($arg:tt)*) => {{ let _ = writeln!($out, $($arg)*); }};
}

fn unknown_domain(out: &mut String, rules: &RuleSet, domain: &str) {
    let mut known: Vec<_> = rules.domains().map(|name| format!("'{name}'")).collect();
    known.sort();
    say!(out, "No limit: there are no rules for domain '{domain}'.");
    say!(out, "Domains with rules: {}.", list(&known));
}

/// Names of limits that matched limits of the request replace, each with the label of the one that does.
struct Replaced(Vec<(String, String)>);

impl Replaced {
    fn by(domain: &DomainRules, request: &Request) -> Self {
        let mut scratch = String::new();
        let mut pairs = Vec::new();
        for descriptor in &request.descriptors {
            let found = domain.walk(&descriptor.entries, &mut scratch);
            for limit in limits_of(&found) {
                for name in &limit.spec.replaces {
                    pairs.push((name.clone(), limit.label.to_string()));
                }
            }
        }
        Self(pairs)
    }

    /// What takes the place of `limit`.
    fn by_whom(&self, limit: &Limit) -> Option<&str> {
        let name = limit.spec.name.as_deref()?;
        let (_, replacer) = self.0.iter().find(|(replaced, _)| replaced == name)?;
        Some(replacer)
    }
}

fn limits_of<'r>(found: &Walk<'r>) -> impl Iterator<Item = &'r Limit> + use<'r> {
    let rule: Option<&'r Rule> = found.end.and_then(|node| node.rule.as_deref());
    rule.into_iter().flat_map(|rule| rule.limits.iter().map(AsRef::as_ref))
}

/// The limits that one descriptor alone would charge, each with the key of its counter.
fn keys(
    rules: &RuleSet,
    request: &Request,
    descriptor: &Descriptor,
) -> Result<Vec<(LimitId, String)>, PlanError> {
    let alone = Request {
        domain: request.domain.clone(),
        hits_addend: request.hits_addend,
        descriptors: vec![Descriptor { limit: None, ..descriptor.clone() }],
    };
    let plan = rules.plan(&alone)?;
    let charges = plan.charges.as_slice();
    // Limits of one rule have counters of their own, so limits and charges go in step.
    let keys =
        plan.limits().zip(charges).map(|(limit, charge)| (limit.id, plan.charges.key(charge).to_owned()));
    Ok(keys.collect())
}

/// One descriptor on its way down the tree.
struct Explanation<'r> {
    domain: &'r DomainRules,
    descriptor: &'r Descriptor,
    keys: Vec<(LimitId, String)>,
}

impl Explanation<'_> {
    /// Writes down the way and what is met at its end. Returns whether a limit applies.
    fn explain(&self, out: &mut String, replaced: &Replaced) -> bool {
        let entries = &self.descriptor.entries;
        let shown: Vec<_> = entries.iter().map(pair).collect();
        say!(out, "Domain '{}', descriptor {}", self.domain.name, shown.join(","));
        let found = self.domain.walk(entries, &mut String::new());
        for (index, (step, entry)) in found.steps.iter().zip(entries).enumerate() {
            say!(out, "  entry {}  {}  {}", index + 1, pair(entry), how(*step));
        }
        let Some(end) = found.end else {
            self.explain_stop(out, &found);
            return false;
        };
        let Some(rule) = &end.rule else {
            say!(out, "No limit: {}.", why_no_rule(end));
            return false;
        };
        say!(out, "Rule {}{}", rule.path, modes(rule));
        let mut applies = false;
        for limit in &rule.limits {
            say!(out, "  limit {}", limit.label);
            applies |= self.explain_limit(out, rule, limit, replaced);
        }
        applies
    }

    fn explain_stop(&self, out: &mut String, found: &Walk<'_>) {
        let place = found.steps.len();
        let Some(entry) = self.descriptor.entries.get(place) else {
            say!(out, "No limit: the descriptor has no entries.");
            return;
        };
        let node = found.steps.last().map_or(&self.domain.root, |step| step.node());
        let (number, entry) = (place + 1, pair(entry));
        if node.is_leaf() && place > 0 {
            say!(
                out,
                "No limit: the descriptor is deeper than the rules. Nothing stands below '{}' for entry {number} ({entry}), \
                 and a limit counts only where the descriptor ends.",
                node.composite
            );
            return;
        }
        say!(out, "No limit: no node for entry {number} ({entry}).");
        say!(out, "That level has: {}.", offers(node));
    }

    fn explain_limit(&self, out: &mut String, rule: &Rule, limit: &Limit, replaced: &Replaced) -> bool {
        if let Some(replacer) = replaced.by_whom(limit) {
            say!(out, "    left out: replaced by limit '{replacer}'");
            return false;
        }
        say!(out, "    admits            {}", describe_limit::parameters(limit));
        if limit.quantity == Quantity::Unlimited {
            return true;
        }
        let spec = &limit.spec;
        say!(out, "    algorithm         {}", spec.algorithm);
        say!(out, "    charging          {}", describe_limit::charging(spec.charging));
        say!(out, "    on store failure  {}", describe_limit::policy(spec.on_store_failure));
        if let Some((_, key)) = self.keys.iter().find(|(id, _)| *id == limit.id) {
            say!(out, "    store key         {key} (in Redis after store.redis.key_prefix)");
            say!(out, "    shard by          {}", describe_limit::shard_by(rule.shard_by));
        }
        for name in &spec.replaces {
            say!(out, "    replaces          {name}");
        }
        true
    }
}

fn pair(entry: &Entry) -> String {
    format!("{}={}", entry.key, entry.value)
}

fn how(step: Step<'_>) -> String {
    match step {
        Step::Exact(node) if node.shares_counter => {
            format!("exact value, node '{}'; all values of this wildcard share one counter", node.composite)
        }
        Step::Exact(node) => format!("exact value, node '{}'", node.composite),
        Step::Wildcard(node) if node.shares_counter => {
            format!("wildcard, node '{}'; all its values share one counter", node.composite)
        }
        Step::Wildcard(node) => format!("wildcard, node '{}'; each value counts apart", node.composite),
        Step::Default(node) => format!("key alone, node '{}'; each value counts apart", node.composite),
    }
}

fn modes(rule: &Rule) -> &'static str {
    match (rule.shadow, rule.quota) {
        (true, _) => " (shadow mode: counts, never denies)",
        (false, true) => " (quota mode: denies only if every quota rule of the request does)",
        (false, false) => "",
    }
}

fn why_no_rule(end: &Node) -> String {
    if end.is_leaf() {
        return format!("node '{}' has none, so what ends there is exempt", end.composite);
    }
    format!(
        "the descriptor is shorter than the rules. It ends at node '{}', which has no limit of its own; below it are {}",
        end.composite,
        offers(end)
    )
}

/// The nodes below `node`, in the order of their names.
fn offers(node: &Node) -> String {
    let mut names: Vec<_> = node.children().map(|child| format!("'{}'", child.composite)).collect();
    names.sort();
    list(&names)
}

fn list(names: &[String]) -> String {
    const SHOWN: usize = 12;
    match names.len() {
        0 => "none".to_owned(),
        len if len > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), len - SHOWN),
        _ => names.join(", "),
    }
}
