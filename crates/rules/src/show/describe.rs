//! Explains which limits apply to a request and why: the nodes that its descriptors match, the limits with their
//! parameters, and the keys of their counters.

use base::escaped;
use engine::{
    Change, Derivation, Descriptor, DomainRules, Entry, FailurePolicy, Limit, LimitSpec, Node, Plan,
    PlanError, Quantity, Request, Rule, RuleSet, Step, Walk,
};

use super::derivation::{derivation_text, reasons};
use super::describe_limit;
use crate::load::AppliedUpgrades;

/// A request explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The explanation; each line ends with `\n`.
    pub text: String,
    /// The number of descriptors with at least one limit that is not replaced.
    pub matched: usize,
}

/// Explains which of `rules`, changed by `upgrades`, apply to each descriptor of `request` at `now_us`. Overrides in
/// the request are ignored, because they need no rule.
///
/// # Errors
/// [`PlanError`] if the engine cannot plan the request.
pub fn describe(
    rules: &RuleSet,
    upgrades: &AppliedUpgrades,
    request: &Request,
    now_us: u64,
) -> Result<Description, PlanError> {
    let mut description = Description { text: String::new(), matched: 0 };
    let Some(domain) = rules.domain(&request.domain) else {
        unknown_domain(&mut description.text, rules, &request.domain);
        return Ok(description);
    };
    let replaced = Replacements::in_request(domain, request);
    for descriptor in &request.descriptors {
        let plan = plan_alone(rules, request, descriptor, now_us)?;
        let entries = descriptor.entries.iter().map(|entry| shown_entry(rules, domain, entry)).collect();
        let explanation = Explanation { domain, upgrades, descriptor, entries, plan, now_us };
        if explanation.explain_descriptor(&mut description.text, &replaced) {
            description.matched += 1;
        }
    }
    explain_mixed_policies(&mut description.text, &policies(domain, request, &replaced));
    Ok(description)
}

/// Appends a line. Writing to a String cannot fail.
macro_rules! push_line {
    ($out:expr, $($arg:tt)*) => {{
        $out.push_str(&escaped(format!($($arg)*)));
        $out.push('\n');
    }};
}

fn unknown_domain(out: &mut String, rules: &RuleSet, domain: &str) {
    let mut known: Vec<_> = rules.domains().map(|name| format!("'{name}'")).collect();
    known.sort();
    push_line!(out, "No limit: there are no rules for domain '{domain}'.");
    push_line!(out, "Domains with rules: {}.", join_names(&known));
}

/// The names of the limits that are replaced in this request, each with the label of the limit that replaces it.
struct Replacements(Vec<(String, String)>);

impl Replacements {
    fn in_request(domain: &DomainRules, request: &Request) -> Self {
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

    /// The label of the limit that replaces `limit`.
    fn replacer_of(&self, limit: &Limit) -> Option<&str> {
        let name = limit.spec.name.as_deref()?;
        let (_, replacer) = self.0.iter().find(|(replaced, _)| replaced == name)?;
        Some(replacer)
    }
}

fn limits_of<'r>(found: &Walk<'r>) -> impl Iterator<Item = &'r Limit> + use<'r> {
    let rule: Option<&'r Rule> = found.end.and_then(|node| node.rule.as_deref());
    rule.into_iter().flat_map(|rule| rule.limits.iter().map(AsRef::as_ref))
}

/// The failure policies of the limits that can deny the request, each with the label of the limit.
fn policies<'r>(
    domain: &'r DomainRules,
    request: &Request,
    replaced: &Replacements,
) -> Vec<(&'r str, FailurePolicy)> {
    let mut policies = Vec::new();
    for descriptor in &request.descriptors {
        let found = domain.walk(&descriptor.entries, &mut String::new());
        for limit in
            limits_of(&found).filter(|limit| !limit.never_denies() && replaced.replacer_of(limit).is_none())
        {
            let policy = (&*limit.label, limit.spec.on_store_failure);
            if describe_limit::has_counter(limit) && !policies.contains(&policy) {
                policies.push(policy);
            }
        }
    }
    policies
}

/// Warns where one request meets several policies: the answer without the store then depends on all of them.
fn explain_mixed_policies(out: &mut String, policies: &[(&str, FailurePolicy)]) {
    let Some((_, first)) = policies.first() else { return };
    if policies.iter().all(|(_, policy)| policy == first) {
        return;
    }
    let named: Vec<_> =
        policies.iter().map(|(label, policy)| format!("{label}: {}", policy.name())).collect();
    push_line!(out, "Warning: limits of this request differ in on_store_failure ({}).", join_names(&named));
    if policies.iter().any(|(_, policy)| *policy == FailurePolicy::Error) {
        push_line!(out, "If Redis does not answer, the call fails unless another limit denies the request.");
    } else {
        push_line!(out, "If Redis does not answer, each limit decides by its own, and one denial is enough.");
    }
}

/// The plan of one descriptor alone.
fn plan_alone(
    rules: &RuleSet,
    request: &Request,
    descriptor: &Descriptor,
    now_us: u64,
) -> Result<Plan, PlanError> {
    let alone = Request {
        domain: request.domain.clone(),
        hits_addend: request.hits_addend,
        descriptors: vec![Descriptor { limit: None, ..descriptor.clone() }],
        caller: request.caller,
    };
    Plan::new(rules, &alone, now_us)
}

/// One descriptor of a request, with the rules of its domain.
struct Explanation<'r> {
    domain: &'r DomainRules,
    upgrades: &'r AppliedUpgrades,
    descriptor: &'r Descriptor,
    /// The entries as they are shown.
    entries: Vec<String>,
    /// The plan of the descriptor alone.
    plan: Plan,
    now_us: u64,
}

impl Explanation<'_> {
    /// Appends the matched nodes and the limits of the last one. Returns whether a limit applies.
    fn explain_descriptor(&self, out: &mut String, replaced: &Replacements) -> bool {
        push_line!(out, "Domain '{}', descriptor {}", self.domain.name, self.entries.join(","));
        let found = self.domain.walk(&self.descriptor.entries, &mut String::new());
        for (index, (step, entry)) in found.steps.iter().zip(&self.entries).enumerate() {
            push_line!(out, "  entry {}  {entry}  {}", index + 1, match_kind(*step));
        }
        let Some(end) = found.end else {
            self.explain_mismatch(out, &found);
            return self.explain_block(out);
        };
        let Some(rule) = &end.rule else {
            push_line!(out, "No limit: {}.", no_limit_reason(end));
            return self.explain_block(out);
        };
        push_line!(out, "Rule {}{}", rule.path, mode_note(rule));
        let mut applies = false;
        for limit in &rule.limits {
            // A limit without a name has the path of its rule as its label.
            match *limit.label == *rule.path {
                true => push_line!(out, "  limit"),
                false => push_line!(out, "  limit {}", limit.label),
            }
            applies |= self.explain_limit(out, rule, limit, replaced);
        }
        applies
    }

    fn explain_mismatch(&self, out: &mut String, found: &Walk<'_>) {
        let place = found.steps.len();
        let Some(entry) = self.entries.get(place) else {
            push_line!(out, "No limit: the descriptor has no entries.");
            return;
        };
        let node = found.steps.last().map_or(&self.domain.root, |step| step.node());
        let number = place + 1;
        if node.is_leaf() && place > 0 {
            push_line!(
                out,
                "No limit: the descriptor is deeper than the rules. No node below '{}' matches entry {number} ({entry}), \
                 and a limit applies only where the descriptor ends.",
                node.composite
            );
            return;
        }
        push_line!(out, "No limit: no node for entry {number} ({entry}).");
        push_line!(out, "That level has: {}.", child_names(node));
    }

    /// A row that blocks denies a descriptor without a limit, too. Returns whether there is one.
    fn explain_block(&self, out: &mut String) -> bool {
        let Some(derivation) = self.plan.derivations().first() else { return false };
        push_line!(out, "Every hit is denied nevertheless:");
        explain_derivation(out, derivation);
        true
    }

    /// The limit that applies in place of `limit`, with the key of its counter.
    fn planned(&self, limit: &Limit) -> Option<(&Limit, Option<&str>)> {
        // Each limit of the rule that counts has one charge, in the same order.
        let mut charged = self.plan.limits().zip(self.plan.charges.keys());
        let charged = charged.find(|(planned, _)| planned.id == limit.id);
        let mut unlimited = self.plan.unlimited();
        charged
            .map(|(planned, key)| (planned, Some(key)))
            .or_else(|| Some((unlimited.find(|planned| planned.id == limit.id)?, None)))
    }

    fn explain_limit(&self, out: &mut String, rule: &Rule, limit: &Limit, replaced: &Replacements) -> bool {
        let (planned, key) = self.planned(limit).unwrap_or((limit, None));
        if let Some(replacer) = replaced.replacer_of(limit).filter(|_| !planned.blocked) {
            push_line!(out, "    left out: replaced by limit '{replacer}'");
            return false;
        }
        let derivation = self.plan.derivations().iter().find(|derivation| derivation.limit == limit.id);
        let is_exempt = derivation.is_some_and(is_exempt);
        let admits = match planned.blocked {
            true => BLOCKED.to_owned(),
            false if is_exempt => EXEMPT.to_owned(),
            false => describe_limit::parameters(planned),
        };
        push_line!(out, "    admits            {admits}");
        if !limit.tiers.is_empty() {
            push_line!(out, "    tiers             {}", describe_limit::tiers(&limit.spec));
        }
        if let Some(derivation) = derivation {
            explain_derivation(out, derivation);
        }
        if planned.blocked || planned.quantity == Quantity::Unlimited {
            return true;
        }
        // What a counter has does not apply to a limit of 0.
        let has_counter = describe_limit::has_counter(planned);
        if has_counter {
            self.explain_counting(out, &planned.spec);
        }
        if let Some(text) = describe_limit::on_over(planned) {
            push_line!(out, "    on over           {text}");
        }
        if let Some(key) = key.filter(|_| has_counter) {
            push_line!(out, "    store key         {key} (in Redis after store.redis.key_prefix)");
            push_line!(out, "    shard by          {}", describe_limit::shard_by(rule.shard_by));
        }
        if let Some(upgraded) = self.upgrades.of_limit(limit.id) {
            push_line!(out, "    upgraded          {}", upgraded.sources);
        }
        for name in &planned.spec.replaces {
            push_line!(out, "    replaces          {name}");
        }
        true
    }

    /// How the counter counts.
    fn explain_counting(&self, out: &mut String, spec: &LimitSpec) {
        if let Some(window) = describe_limit::window(spec, self.now_us) {
            push_line!(out, "    window            {window}");
        }
        push_line!(out, "    algorithm         {}", spec.algorithm);
        push_line!(out, "    charging          {}", describe_limit::charging(spec.charging));
        if spec.settle {
            push_line!(out, "    settle            {}", describe_limit::SETTLE);
        }
        push_line!(out, "    on store failure  {}", describe_limit::policy(spec.on_store_failure));
        if let Some(share) = spec.near {
            push_line!(out, "    near              {}", describe_limit::near(share, spec));
        }
        if let Some(units) = spec.reserve {
            push_line!(out, "    reserve           {}", describe_limit::reserve(units));
        }
    }
}

const EXEMPT: &str = "everything, because a row exempts: nothing is counted";
const BLOCKED: &str = "nothing, because a row blocks";

fn is_exempt(derivation: &Derivation) -> bool {
    derivation.steps.iter().any(|step| step.change == Change::Exempt)
}

/// How the limit came about, and why its rows exist.
fn explain_derivation(out: &mut String, derivation: &Derivation) {
    push_line!(out, "    exception         {}", derivation_text(derivation));
    for reason in reasons(derivation) {
        push_line!(out, "    reason            {reason}");
    }
}

/// `key=value`; of a secret value the hash that stands in the key of its counter.
fn shown_entry(rules: &RuleSet, domain: &DomainRules, entry: &Entry) -> String {
    let hidden = rules.hidden_value(&domain.name, entry);
    format!("{}={}", entry.key, hidden.as_deref().unwrap_or(&entry.value))
}

fn match_kind(step: Step<'_>) -> String {
    match step {
        Step::Exact(node) if node.shares_counter => {
            format!("exact value, node '{}'; all values of this wildcard share one counter", node.composite)
        }
        Step::Exact(node) => format!("exact value, node '{}'", node.composite),
        Step::Wildcard(node) if node.shares_counter => {
            format!("wildcard, node '{}'; all its values share one counter", node.composite)
        }
        Step::Wildcard(node) => {
            format!("wildcard, node '{}'; each value has its own counter", node.composite)
        }
        Step::KeyOnly(node) if node.is_tier => {
            format!("tier, node '{}'; all its values share the counter", node.composite)
        }
        Step::KeyOnly(node) => {
            format!("key alone, node '{}'; each value has its own counter", node.composite)
        }
    }
}

fn mode_note(rule: &Rule) -> &'static str {
    match (rule.shadow, rule.quota) {
        (true, _) => " (shadow mode: counts, never denies)",
        (false, true) => " (quota mode: denies only if every quota rule of the request does)",
        (false, false) => "",
    }
}

fn no_limit_reason(end: &Node) -> String {
    if end.is_leaf() {
        return format!("node '{}' has no limit, so descriptors that end there are exempt", end.composite);
    }
    format!(
        "the descriptor is shorter than the rules. It ends at node '{}', which has no limit of its own; below it are {}",
        end.composite,
        child_names(end)
    )
}

/// The names of the nodes below `node`, sorted.
fn child_names(node: &Node) -> String {
    let mut names: Vec<_> = node.children().map(|child| format!("'{}'", child.composite)).collect();
    names.sort();
    join_names(&names)
}

fn join_names(names: &[String]) -> String {
    const SHOWN: usize = 12;
    match names.len() {
        0 => "none".to_owned(),
        len if len > SHOWN => format!("{} and {} more", names[..SHOWN].join(", "), len - SHOWN),
        _ => names.join(", "),
    }
}
