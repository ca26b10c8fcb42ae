//! From a request to what the store must decide: match every descriptor, drop what is replaced, spell the keys.

use std::sync::Arc;

use smallvec::SmallVec;

use super::key::{self, Frame, Part};
use super::{
    Charge, Charges, Cost, Defaults, Descriptor, DomainRules, Entry, Limit, LimitError, LimitOverride,
    LimitSpec, Quantity, Request, Role, Rule, RuleSet, Walk,
};

/// Why a request cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The limit that came with a descriptor is out of range.
    #[error("descriptor {place}: {cause}")]
    Override {
        /// Which descriptor, from 0.
        place: usize,
        /// What is wrong with its limit.
        cause: LimitError,
    },
}

/// What one request meets: the charges for the store, and which descriptor each belongs to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// For the store.
    pub charges: Charges,
    /// One per descriptor, in order.
    pub(super) descriptors: SmallVec<[Planned; 2]>,
}

/// What one descriptor meets.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Planned {
    /// No rule, or all its limits are replaced.
    Nothing,
    /// Only limits that never deny.
    Unlimited { rule: Option<Arc<Rule>>, limit: Arc<Limit> },
    /// Limits that count, each with the place of its charge.
    Limited { rule: Option<Arc<Rule>>, limits: SmallVec<[(Arc<Limit>, usize); 2]> },
}

/// A descriptor with the limits that apply to it.
struct Match<'r> {
    rule: Option<&'r Arc<Rule>>,
    own: Option<Arc<Limit>>,
    found: Walk<'r>,
}

impl Match<'_> {
    fn limits(&self) -> &[Arc<Limit>] {
        match (&self.own, self.rule) {
            (Some(own), _) => std::slice::from_ref(own),
            (None, Some(rule)) => &rule.limits,
            (None, None) => &[],
        }
    }

    fn is_quota(&self) -> bool {
        self.rule.is_some_and(|rule| rule.quota)
    }

    fn is_shadow(&self) -> bool {
        self.rule.is_some_and(|rule| rule.shadow)
    }
}

impl RuleSet {
    /// Finds what applies to each descriptor of `request` and what the store must decide.
    ///
    /// # Errors
    /// [`PlanError`] where a limit that came with the request is out of range.
    pub fn plan(&self, request: &Request) -> Result<Plan, PlanError> {
        let Some(domain) = self.domain(&request.domain) else {
            let descriptors = request.descriptors.iter().map(|_| Planned::Nothing).collect();
            return Ok(Plan { charges: Charges::default(), descriptors });
        };
        let matches = self.matches(domain, request)?;
        let replaced: SmallVec<[&str; 2]> = matches
            .iter()
            .flat_map(Match::limits)
            .flat_map(|limit| &limit.spec.replaces)
            .map(String::as_str)
            .collect();
        // A quota rule in shadow is never over, so the others can never all be: none of them can deny.
        let counts = |found: &Match<'_>| found.limits().iter().any(|limit| is_counted(limit, &replaced));
        let quota_can_deny =
            !matches.iter().any(|found| found.is_quota() && found.is_shadow() && counts(found));
        let mut plan = Plan::default();
        for (descriptor, found) in request.descriptors.iter().zip(&matches) {
            let role = match (found.is_shadow(), found.is_quota()) {
                (true, _) => Role::NonBinding,
                (false, true) if quota_can_deny => Role::Quota(plan.charges.quota_groups()),
                (false, true) => Role::NonBinding,
                (false, false) => Role::Enforce,
            };
            let asked = Asked { domain, entries: &descriptor.entries, cost: request.cost(descriptor), role };
            let planned = plan.add(found, &asked, &replaced);
            plan.descriptors.push(planned);
        }
        Ok(plan)
    }

    fn matches<'r>(
        &'r self,
        domain: &'r DomainRules,
        request: &Request,
    ) -> Result<SmallVec<[Match<'r>; 2]>, PlanError> {
        let mut scratch = String::new();
        let mut matches = SmallVec::with_capacity(request.descriptors.len());
        for (place, descriptor) in request.descriptors.iter().enumerate() {
            let own = self.own_limit(descriptor).map_err(|cause| PlanError::Override { place, cause })?;
            if own.is_some() {
                matches.push(Match { rule: None, own, found: Walk::default() });
                continue;
            }
            let found = domain.walk(&descriptor.entries, &mut scratch);
            let rule = found.end.and_then(|node| node.rule.as_ref());
            matches.push(Match { rule, own: None, found });
        }
        Ok(matches)
    }

    /// The limit that came with the descriptor. It has a counter apart from any rule's.
    fn own_limit(&self, descriptor: &Descriptor) -> Result<Option<Arc<Limit>>, LimitError> {
        let Some(sent) = descriptor.limit else {
            return Ok(None);
        };
        let spec = override_spec(sent, self.defaults());
        let mut limit = Limit::new(self.override_id(), spec, "override")?;
        limit.fingerprint = format!("o:{}", limit.fingerprint).into();
        Ok(Some(Arc::new(limit)))
    }
}

fn is_replaced(limit: &Limit, replaced: &[&str]) -> bool {
    limit.spec.name.as_deref().is_some_and(|name| replaced.contains(&name))
}

fn is_counted(limit: &Limit, replaced: &[&str]) -> bool {
    limit.quantity != Quantity::Unlimited && !is_replaced(limit, replaced)
}

fn override_spec(sent: LimitOverride, defaults: Defaults) -> LimitSpec {
    LimitSpec {
        charging: defaults.charging(false),
        on_store_failure: defaults.on_store_failure,
        ..LimitSpec::new(defaults.algorithm, sent.requests_per_unit, sent.period)
    }
}

/// One descriptor of the request, as far as its charges need to know it.
struct Asked<'a> {
    domain: &'a DomainRules,
    entries: &'a [Entry],
    cost: Cost,
    role: Role,
}

impl Plan {
    /// Every limit that is asked, once per descriptor.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.descriptors
            .iter()
            .flat_map(|planned| match planned {
                Planned::Limited { limits, .. } => limits.as_slice(),
                Planned::Nothing | Planned::Unlimited { .. } => &[],
            })
            .map(|(limit, _)| limit.as_ref())
    }

    fn add(&mut self, found: &Match<'_>, asked: &Asked<'_>, replaced: &[&str]) -> Planned {
        let mut unlimited = None;
        let mut limits = SmallVec::new();
        for limit in found.limits() {
            if is_replaced(limit, replaced) {
                continue;
            }
            let Quantity::Limited(kernel) = limit.quantity else {
                unlimited = Some(Arc::clone(limit));
                continue;
            };
            let charge = Charge {
                key: 0..0,
                kernel,
                cost: asked.cost,
                charging: limit.spec.charging,
                role: asked.role,
                on_store_failure: limit.spec.on_store_failure,
            };
            let place = self.charges.push(charge, |keys| spell(keys, found, asked, limit));
            limits.push((Arc::clone(limit), place));
        }
        match (limits.is_empty(), unlimited) {
            (false, _) => Planned::Limited { rule: found.rule.cloned(), limits },
            (true, Some(limit)) => Planned::Unlimited { rule: found.rule.cloned(), limit },
            (true, None) => Planned::Nothing,
        }
    }
}

fn spell(keys: &mut String, found: &Match<'_>, asked: &Asked<'_>, limit: &Limit) {
    let entries = asked.entries.iter().enumerate().map(|(place, entry)| {
        match found.found.steps.get(place).map(|step| step.node()) {
            Some(node) if node.shares_counter => Part::Shared(&node.key, node.value()),
            _ => Part::Own(&entry.key, &entry.value),
        }
    });
    let frame = Frame {
        domain: &asked.domain.name,
        shard_by: found.rule.map_or(asked.domain.shard_by, |rule| rule.shard_by),
        fingerprint: &limit.fingerprint,
    };
    key::spell(keys, &frame, entries);
}
