//! Explains which limits apply to a request and why: matching nodes, limits with their parameters, and counter keys.

use base::escaped;
use engine::{
    Change, Derivation, DomainRules, Entry, ExplainedDescriptor, ExplainedLimit, Explanation, FailurePolicy,
    Limit, LimitUse, Node, Plan, PlanError, Quantity, Request, Rule, RuleSet, ShardBy, Step,
};

use super::derivation::{derivation_text, reasons};
use super::describe_limit::{self, limit_text};
use crate::keys::{Explain, LIMIT_FIELDS, tiers};
use crate::load::AppliedUpgrades;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Each line ends with `\n`.
    pub text: String,
    /// Number of descriptors with at least one limit that is not replaced.
    pub matched: usize,
    /// Applying limits: label, and [`limit_text`]. In descriptor order.
    pub limits: Vec<(String, String)>,
}

/// Prints the plan of `request` at `now_us`: which of `rules`, changed by `upgrades`, apply to each descriptor, and
/// why.
///
/// # Errors
/// [`PlanError`] if the engine cannot plan the request.
pub fn describe(
    rules: &RuleSet,
    upgrades: &AppliedUpgrades,
    request: &Request,
    now_us: u64,
) -> Result<Description, PlanError> {
    let mut description = Description { text: String::new(), matched: 0, limits: Vec::new() };
    let Explanation { plan, domain, descriptors } = Explanation::new(rules, request, now_us)?;
    let Some(domain) = domain else {
        unknown_domain(&mut description.text, rules, &request.domain);
        return Ok(description);
    };
    for (descriptor, explained) in request.descriptors.iter().zip(&descriptors) {
        let entries = descriptor.entries.iter().map(|entry| shown_entry(rules, domain, entry)).collect();
        let shown = ShownDescriptor { domain, upgrades, entries, explained, plan: &plan, now_us };
        if shown.explain_descriptor(&mut description.text) {
            description.matched += 1;
        }
        let applying = explained.limits.iter().filter(|limit| limit.planned.applies());
        let named = applying.map(|applied| (applied.limit.label.to_string(), limit_text(&applied.limit)));
        description.limits.extend(named);
    }
    explain_mixed_policies(&mut description.text, &policies(&descriptors));
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
    push_line!(out, "No limit: no rules for domain '{domain}'.");
    push_line!(out, "Domains with rules: {}.", join_names(&known));
}

/// The failure policies of the limits that can deny the request, each with the limit's label.
fn policies<'d>(descriptors: &'d [ExplainedDescriptor<'_>]) -> Vec<(&'d str, FailurePolicy)> {
    let mut policies = Vec::new();
    for ExplainedLimit { limit, planned, .. } in descriptors.iter().flat_map(|explained| &explained.limits) {
        let can_deny = planned.applies() && !limit.never_denies() && limit.has_counter();
        let policy = (&*limit.label, limit.spec.on_store_failure);
        if can_deny && !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    policies
}

/// Warns if several policies apply to one request: without the store, its answer depends on all of them.
fn explain_mixed_policies(out: &mut String, policies: &[(&str, FailurePolicy)]) {
    let Some((_, first)) = policies.first() else { return };
    if policies.iter().all(|(_, policy)| policy == first) {
        return;
    }
    let named: Vec<_> =
        policies.iter().map(|(label, policy)| format!("{label}: {}", policy.into_str())).collect();
    push_line!(out, "Warning: limits of this request differ in on_store_failure ({}).", join_names(&named));
    if policies.iter().any(|(_, policy)| *policy == FailurePolicy::Error) {
        push_line!(out, "If Redis does not answer, the call fails unless another limit denies the request.");
    } else {
        push_line!(out, "If Redis does not answer, each limit decides by its own, and one denial is enough.");
    }
}

/// One descriptor of a request, with the rules of its domain.
struct ShownDescriptor<'d, 'r> {
    domain: &'d DomainRules,
    upgrades: &'d AppliedUpgrades,
    /// The entries as shown.
    entries: Vec<String>,
    explained: &'d ExplainedDescriptor<'r>,
    plan: &'d Plan,
    now_us: u64,
}

impl ShownDescriptor<'_, '_> {
    /// Appends the matched nodes and the limits. Returns `true` if a limit applies.
    fn explain_descriptor(&self, out: &mut String) -> bool {
        push_line!(out, "Domain '{}', descriptor {}", self.domain.name, self.entries.join(","));
        let ExplainedDescriptor { walk, rule, is_override, limits } = self.explained;
        for (index, (step, entry)) in walk.steps.iter().zip(&self.entries).enumerate() {
            push_line!(out, "  entry {}  {entry}  {}", index + 1, match_kind(*step));
        }
        match (rule, limits.as_slice()) {
            (Some(rule), _) => self.explain_rule(out, rule),
            (None, [own]) if *is_override => {
                push_line!(out, "The request brings its own limit, which takes the place of the rules");
                self.explain_limit(out, None, own)
            }
            (None, limits) => {
                match walk.end {
                    Some(end) => push_line!(out, "No limit: {}.", no_limit_reason(end)),
                    None => self.explain_mismatch(out),
                }
                // A blocking exception also denies a descriptor without a limit.
                let derivations = limits.iter().filter_map(|limit| limit.derivation.as_ref());
                for derivation in derivations {
                    push_line!(out, "Every hit is denied nevertheless:");
                    explain_derivation(out, derivation);
                }
                !limits.is_empty()
            }
        }
    }

    fn explain_rule(&self, out: &mut String, rule: &Rule) -> bool {
        push_line!(out, "Rule {}{}", rule.path, mode_note(rule));
        let mut applies = false;
        for (of_rule, explained) in rule.limits.iter().zip(&self.explained.limits) {
            // A limit without a name has the path of its rule as its label.
            if *of_rule.label == *rule.path {
                push_line!(out, "  limit")
            } else {
                push_line!(out, "  limit {}", of_rule.label)
            }
            applies |= self.explain_limit(out, Some(of_rule), explained);
        }
        applies
    }

    fn explain_mismatch(&self, out: &mut String) {
        let steps = &self.explained.walk.steps;
        let place = steps.len();
        let Some(entry) = self.entries.get(place) else {
            push_line!(out, "No limit: the descriptor has no entries.");
            return;
        };
        let node = steps.last().map_or(&self.domain.root, |step| step.node());
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

    /// Appends a limit and its use. `of_rule` is the limit as its rule has it. Returns `true` if it applies.
    fn explain_limit(&self, out: &mut String, of_rule: Option<&Limit>, explained: &ExplainedLimit) -> bool {
        let ExplainedLimit { limit, derivation, planned } = explained;
        let charge = match planned {
            LimitUse::Replaced(by) => {
                push_line!(out, "    left out: replaced by limit '{}'", by.label);
                return false;
            }
            LimitUse::LeftOut => {
                push_line!(out, "    left out: a receipt settles only limits with settle");
                return false;
            }
            LimitUse::Unlimited => None,
            LimitUse::Charged(index) => Some(*index),
        };
        let is_exempt = derivation.as_ref().is_some_and(is_exempt);
        let admits = match limit.blocked {
            true => BLOCKED.to_owned(),
            false if is_exempt => EXEMPT.to_owned(),
            false => describe_limit::parameters(limit),
        };
        push_line!(out, "    admits            {admits}");
        if let Some(of_rule) = of_rule.filter(|of_rule| !of_rule.tiers.is_empty()) {
            push_line!(out, "    tiers             {}", tiers(&of_rule.spec));
        }
        if let Some(derivation) = derivation {
            explain_derivation(out, derivation);
        }
        if limit.blocked || limit.quantity == Quantity::Unlimited {
            return true;
        }
        // Lines about a counter do not apply to a limit of 0.
        let has_counter = limit.has_counter();
        if let Some(window) = describe_limit::window(&limit.spec, self.now_us).filter(|_| has_counter) {
            push_line!(out, "    window            {window}");
        }
        explain_fields(out, limit);
        if let Some(charge) = charge.filter(|_| has_counter) {
            let (key, _) = self.plan.charges.get(charge);
            push_line!(out, "    store key         {key} (in Redis after store.redis.key_prefix)");
            push_line!(out, "    shard by          {}", describe_limit::shard_by(self.shard_by()));
        }
        if let Some(upgraded) = of_rule.and_then(|of_rule| self.upgrades.of_limit(of_rule.id)) {
            push_line!(out, "    upgraded          {}", upgraded.sources);
        }
        for name in &limit.spec.replaces {
            push_line!(out, "    replaces          {name}");
        }
        true
    }

    fn shard_by(&self) -> ShardBy {
        self.explained.rule.map_or(self.domain.shard_by, |rule| rule.shard_by)
    }
}

/// Appends the fields of a limit that have their own lines: those of its counter first.
fn explain_fields(out: &mut String, limit: &Limit) {
    let has_counter = limit.has_counter();
    let mut of_limit = String::new();
    for field in LIMIT_FIELDS {
        let (lines, text) = match field.explain {
            Explain::OfCounter(text) if has_counter => (&mut *out, text),
            Explain::OfLimit(text) => (&mut of_limit, text),
            Explain::OfCounter(_) | Explain::Elsewhere => continue,
        };
        if let Some(text) = text(limit) {
            push_line!(lines, "    {:<17} {text}", field.name.replace('_', " "));
        }
    }
    out.push_str(&of_limit);
}

const EXEMPT: &str = "everything, because a row exempts: nothing is counted";
const BLOCKED: &str = "nothing, because a row blocks";

fn is_exempt(derivation: &Derivation) -> bool {
    derivation.steps.iter().any(|step| step.change == Change::Exempt)
}

/// How the limit came about, and why its exceptions exist.
fn explain_derivation(out: &mut String, derivation: &Derivation) {
    push_line!(out, "    exception         {}", derivation_text(derivation));
    for reason in reasons(derivation) {
        push_line!(out, "    reason            {reason}");
    }
}

/// `key=value`; for a secret value, the hash used in the counter key.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::{
        Algorithm, Caller, Defaults, Descriptor, DomainSpec, Effect, ExceptionRow, Exceptions,
        ExceptionsBuilder, LimitSpec, LiveRows, NodeSpec, Period, RowSource, RowTerms, RowValue, RuleSpec,
        Unit, ValueHashing,
    };

    use super::*;

    fn node(key: &str, spec: LimitSpec) -> NodeSpec {
        let limits = vec![Limit::new(spec).expect("a valid limit")];
        let rule = Some(RuleSpec { limits, ..RuleSpec::default() });
        NodeSpec { key: key.to_owned(), rule, ..NodeSpec::default() }
    }

    fn named(name: &str, spec: LimitSpec) -> LimitSpec {
        LimitSpec { name: Some(name.to_owned()), ..spec }
    }

    /// The limit `big` of `vip` replaces `free` of `org`, which is unlimited, and `small` of `user`.
    fn rules() -> RuleSet {
        let hundred = LimitSpec::new(Algorithm::FixedWindow, 100, Period::one(Unit::Minute));
        let replaces = vec!["free".to_owned(), "small".to_owned()];
        let nodes = vec![
            node("vip", named("big", LimitSpec { replaces, ..hundred.clone() })),
            node("org", named("free", LimitSpec { unlimited: true, ..hundred.clone() })),
            node("user", named("small", LimitSpec { requests_per_unit: 5, ..hundred })),
        ];
        let domain = DomainSpec { domain: "d".to_owned(), descriptors: nodes, ..DomainSpec::default() };
        RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules")
    }

    fn row(key: &str, value: &str, effect: Effect) -> ExceptionRow {
        ExceptionRow {
            source: RowSource::File { file: "ex.yaml".into(), line: 1 },
            value: RowValue::Exact(value.into()),
            from_us: None,
            until_us: None,
            terms: RowTerms { key: key.into(), effect, ..RowTerms::default() }.into(),
        }
    }

    fn exempting(key: &str, value: &str) -> Arc<Exceptions> {
        let none = Exceptions::default();
        let mut builder = ExceptionsBuilder::new(&none);
        builder.add_row(row(key, value, Effect { exempt: true, ..Effect::default() }));
        Arc::new(builder.build(&none, |_| {}))
    }

    fn explained(rules: &RuleSet, pairs: &[(&str, &str)]) -> Description {
        let descriptor = |&(key, value): &(&str, &str)| Descriptor {
            entries: vec![Entry { key: key.to_owned(), value: value.to_owned() }],
            ..Descriptor::default()
        };
        let request = Request {
            domain: "d".to_owned(),
            hits_addend: 1,
            descriptors: pairs.iter().map(descriptor).collect(),
            caller: Caller::default(),
        };
        describe(rules, &AppliedUpgrades::default(), &request, 0).expect("a request without an override")
    }

    #[test]
    fn a_live_row_and_a_grant_are_named() {
        let live_row = |id: &str, version, effect| {
            let row = row("user", "x", effect)
                .with(|terms| (terms.reason, terms.by) = (Some("INC-42".into()), Some("ann".into())));
            ExceptionRow { source: RowSource::Live { id: id.into(), version }, from_us: Some(0), ..row }
        };
        let mut live = LiveRows::default();
        let doubled = Effect { multiplier: "2".parse().ok(), ..Effect::default() };
        let granted = Effect { add: Some(40), ..Effect::default() };
        live.insert(Arc::new(live_row("b5kq0w2m9x7c", 1, doubled)));
        live.insert(Arc::new(live_row("0000000000gr", 2, granted)));
        let rules = rules().with_exceptions(Arc::default(), &live);
        let Description { text, .. } = explained(&rules, &[("user", "x")]);
        let steps = "5 -> x2 = 10 (live row b5kq0w2m9x7c) -> +40 = 50 until 1970-01-01T00:01:00Z (live row 0000000000gr)";
        assert!(text.contains(steps), "{text}");
        assert!(text.contains("INC-42 (by ann), live row b5kq0w2m9x7c\n"), "{text}");
    }

    #[test]
    fn a_limit_that_another_replaces_is_left_out() {
        let Description { text, matched, .. } = explained(&rules(), &[("vip", "1"), ("user", "x")]);
        assert!(text.contains("  limit small\n    left out: replaced by limit 'big'\n"), "{text}");
        assert_eq!(matched, 1, "{text}");
    }

    #[test]
    fn an_unlimited_limit_is_never_replaced() {
        let Description { text, matched, .. } = explained(&rules(), &[("vip", "1"), ("org", "x")]);
        assert!(text.contains("  limit free\n    admits            unlimited: never counted"), "{text}");
        assert_eq!((matched, text.contains("left out")), (2, false), "{text}");
    }

    #[test]
    fn a_limit_that_a_row_exempts_is_not_replaced() {
        let rules = rules().with_exceptions(exempting("user", "x"), &LiveRows::default());
        let Description { text, matched, .. } = explained(&rules, &[("vip", "1"), ("user", "x")]);
        assert!(
            text.contains("  limit small\n    admits            everything, because a row exempts"),
            "{text}"
        );
        assert!(text.contains("exempt (ex.yaml:1)"), "{text}");
        assert_eq!((matched, text.contains("left out")), (2, false), "{text}");
    }
}
