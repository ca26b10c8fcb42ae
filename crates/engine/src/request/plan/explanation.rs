//! Explains a plan: what each descriptor matched, and how each of its limits was used.
//!
//! The planner itself builds it from what it has at hand and drops for a decision. Decisions pay nothing for it, and it
//! cannot deviate from what is charged.

use std::sync::Arc;

use super::{Match, Plan, PlanError, PlannedAt, PlannedUse, Planning, Replacements, find_matches};
use crate::limit::Limit;
use crate::request::Request;
use crate::rules::exceptions::derivation::Derivation;
use crate::rules::rule_set::{DomainRules, Rule, RuleSet, Walk};

#[derive(Clone, Debug)]
pub struct Explanation<'r> {
    pub plan: Plan,
    /// `None` if the request's domain has no rules.
    pub domain: Option<&'r DomainRules>,
    /// One for each descriptor, in order; empty without a domain.
    pub descriptors: Vec<ExplainedDescriptor<'r>>,
}

#[derive(Clone, Debug)]
pub struct ExplainedDescriptor<'r> {
    /// The nodes on its path through the tree. Empty for a descriptor with an override.
    pub walk: Walk<'r>,
    /// The rule at the end of the path.
    pub rule: Option<&'r Rule>,
    /// `true` if the descriptor has an override.
    pub is_override: bool,
    /// The limits of the rule, in its order; or the override; or, for a descriptor without a limit, the exception that
    /// blocks it.
    pub limits: Vec<ExplainedLimit>,
}

#[derive(Clone, Debug)]
pub struct ExplainedLimit {
    /// After exceptions and tiers.
    pub limit: Arc<Limit>,
    /// How exceptions and tiers changed it.
    pub derivation: Option<Derivation>,
    pub planned: LimitUse,
}

/// How a plan uses a limit of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitUse {
    /// It applies: the index of its charge.
    Charged(usize),
    /// It applies, and admits everything without a charge.
    Unlimited,
    /// Left out: this limit of the request replaces it.
    Replaced(Arc<Limit>),
    /// Left out: a settle only affects limits with `settle`, and a renewal only slots.
    LeftOut,
}

impl LimitUse {
    /// `true` if the limit applies to its descriptor.
    pub fn applies(&self) -> bool {
        match self {
            Self::Charged(_) | Self::Unlimited => true,
            Self::Replaced(_) | Self::LeftOut => false,
        }
    }
}

impl<'r> Explanation<'r> {
    /// Plans a request like [`Plan::new`], and explains the plan.
    ///
    /// # Errors
    /// [`PlanError`] if an override is out of range.
    pub fn new(rules: &'r RuleSet, request: &Request, now_us: u64) -> Result<Self, PlanError> {
        let mut plan = Plan::default();
        let Some(domain) = plan.begin_request(rules, request) else {
            return Ok(Self { plan, domain: None, descriptors: Vec::new() });
        };
        let planning = Planning { rules, domain, request, at: PlannedAt::from(now_us) };
        let matches = find_matches(&planning, &plan.hidden, &mut plan.derivations)?;
        let replacements = Replacements::among(&matches);
        plan.add_charges(&planning, &matches, &replacements);
        let described =
            matches.iter().zip(&request.descriptors).enumerate().map(|(index, (matched, descriptor))| {
                let planned_use = |limit: &Arc<Limit>| replacements.planned_use(limit, descriptor, now_us);
                let explained = |limit: &Arc<Limit>| explained_limit(&plan, index, limit, planned_use(limit));
                let limits = matched.limits().iter().map(explained).collect();
                let Match { walk, rule, .. } = matched;
                let is_override = descriptor.limit.is_some();
                ExplainedDescriptor { walk: walk.clone(), rule: rule.map(AsRef::as_ref), is_override, limits }
            });
        let descriptors = described.collect();
        Ok(Self { plan, domain: Some(domain), descriptors })
    }
}

fn explained_limit(
    plan: &Plan,
    descriptor: usize,
    limit: &Arc<Limit>,
    planned_use: PlannedUse<'_>,
) -> ExplainedLimit {
    let planned = match planned_use {
        PlannedUse::Replaced(by) => LimitUse::Replaced(Arc::clone(by)),
        PlannedUse::Unlimited => LimitUse::Unlimited,
        PlannedUse::LeftOut => LimitUse::LeftOut,
        PlannedUse::Charged(_) => {
            let index = plan.charge_of(descriptor, limit.id).expect("a limit that is charged has a charge");
            LimitUse::Charged(index)
        }
    };
    let mut derivations = plan.derivations().iter();
    let derivation = derivations.find(|derivation| derivation.is_of(descriptor, limit.id)).cloned();
    ExplainedLimit { limit: Arc::clone(limit), derivation, planned }
}
