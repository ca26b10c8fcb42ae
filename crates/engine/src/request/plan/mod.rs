//! Plans a request: matches each descriptor, drops replaced limits, and turns the rest into charges with their counter
//! keys.

pub(crate) mod charge;
pub(crate) mod exceptions;
pub(crate) mod explanation;
pub(crate) mod pauses;
pub(crate) mod reserve;
pub(crate) mod settle;

use std::sync::Arc;

use smallvec::SmallVec;

use self::charge::{Charge, Charges, Role};
use self::exceptions::Changing;
use self::pauses::{PauseEvent, ReportedPause};
use self::reserve::{ReserveKind, reserved};
use self::settle::{Returned, Settles, write_settled_key};
use crate::limit::algorithm::{Cost, Kernel, Pacing, Verdict};
use crate::limit::announce::OnOver;
use crate::limit::key::{KeyContext, KeyPart, write_key};
use crate::limit::spec::{Algorithm, Charging, LimitError};
use crate::limit::{Limit, LimitId};
use crate::request::{Attached, Descriptor, LimitOverride, Request};
use crate::rules::exceptions::derivation::Derivation;
use crate::rules::rule_set::{DomainRules, Rule, RuleSet, StatPath, Walk};
use crate::rules::secret::HiddenValues;

#[cfg(test)]
mod tests;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Planned {
    /// No rule, or a rule whose limits are all replaced.
    Nothing,
    /// Only limits that never deny.
    Unlimited(Arc<Limit>),
    /// A reported pause: the limit that blocks the value, and for how many microseconds.
    Paused(Arc<Limit>, u64),
    Limited {
        rule: Option<Arc<Rule>>,
        limits: SmallVec<[PlannedLimit; 2]>,
        /// `None` if the hits are counted under the rule's path.
        stat_path: Option<Box<str>>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedLimit {
    pub(crate) limit: Arc<Limit>,
    charge: u32,
    pub(crate) reserve: Option<ReserveKind>,
}

impl PlannedLimit {
    pub(crate) fn new(limit: &Arc<Limit>, index: usize, reserve: Option<ReserveKind>) -> Self {
        let charge = u32::try_from(index).expect("a request has few charges");
        Self { limit: Arc::clone(limit), charge, reserve }
    }

    fn index(&self) -> usize {
        self.charge as usize
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ChargedLimit<'p> {
    /// `None` for an override.
    pub rule: Option<&'p Rule>,
    pub limit: &'p Limit,
    pub cost: Cost,
    pub role: Role,
    /// `Some` for the check or the charge of a limit with `reserve`.
    pub reserve: Option<ReserveKind>,
    /// Path with request values under which the hits are counted; `None` if it is the rule's path.
    pub stat_path: Option<&'p str>,
    pub index: usize,
}

/// The charges of one request, and the descriptors that they belong to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub charges: Charges,
    /// One per descriptor, in order.
    pub(crate) descriptors: SmallVec<[Planned; 2]>,
    /// Hashes that are shown instead of the request's secret values.
    pub(crate) hidden: HiddenValues,
    /// `true` if an answer may announce one of the limits.
    pub(crate) has_announced_limits: bool,
    /// `true` if one of the limits is a queue.
    pub(crate) has_queues: bool,
    /// How exceptions or tiers changed limits.
    pub(crate) derivations: Vec<Derivation>,
    pub(crate) settles: Settles,
    /// `true` if a charge other than a settle is to a limit with `settle`.
    pub(crate) gives_receipt: bool,
    /// Pauses reported by callers, in descriptor order.
    pub(crate) reported_pauses: Vec<PauseEvent>,
}

impl Plan {
    /// Finds the limits of each descriptor of `request` at this time, and the charges for the store.
    ///
    /// # Errors
    /// [`PlanError`] if an override is out of range.
    pub fn new(rules: &RuleSet, request: &Request, at: impl Into<PlannedAt>) -> Result<Self, PlanError> {
        let mut plan = Self::default();
        plan.refill(rules, request, at)?;
        Ok(plan)
    }

    /// Plans another request and reuses this plan's memory.
    ///
    /// # Errors
    /// [`PlanError`] if an override is out of range. The plan's contents are then unspecified.
    pub fn refill(
        &mut self,
        rules: &RuleSet,
        request: &Request,
        at: impl Into<PlannedAt>,
    ) -> Result<(), PlanError> {
        if let Some(domain) = self.begin_request(rules, request) {
            let planning = Planning { rules, domain, request, at: at.into() };
            let matches = find_matches(&planning, &self.hidden, &mut self.derivations)?;
            self.add_charges(&planning, &matches, &Replacements::among(&matches));
        }
        Ok(())
    }

    /// Empties the plan for a request and returns the rules of its domain. If there are none, the plan is complete.
    fn begin_request<'r>(&mut self, rules: &'r RuleSet, request: &Request) -> Option<&'r DomainRules> {
        let domain = rules.domain(&request.domain);
        self.charges.clear();
        self.descriptors.clear();
        self.has_announced_limits = false;
        self.has_queues = false;
        self.derivations.clear();
        let entries = request.descriptors.iter().map(|descriptor| descriptor.entries.as_slice());
        self.hidden = rules.hidden_values(&request.domain, domain, entries);
        self.settles.clear();
        self.gives_receipt = false;
        self.reported_pauses.clear();
        if domain.is_none() {
            self.descriptors.extend(request.descriptors.iter().map(|_| Planned::Nothing));
        }
        domain
    }

    fn add_charges(
        &mut self,
        planning: &Planning<'_, '_>,
        matches: &[Match<'_>],
        replacements: &Replacements<'_>,
    ) {
        let Planning { rules, domain, request, at } = *planning;
        let quota_mode = rules.defaults().quota_mode;
        // Quota descriptors deny a request only if all of them are over. A descriptor without a limit, or whose limits
        // never deny, is never over; without a limit it is a quota descriptor in quota mode. So if one is never over,
        // the quota descriptors deny nothing.
        let is_quota = |matched: &Match<'_>| quota_mode || matched.is_quota();
        let is_never_over = |matched: &Match<'_>| {
            let bounds = |limit: &&Arc<Limit>| replacements.is_bounding(limit);
            let mut bounding = matched.limits().iter().filter(bounds).peekable();
            match bounding.peek() {
                Some(_) => bounding.all(|limit| limit.never_denies()),
                None => {
                    let is_unlimited = |limit: &Arc<Limit>| limit.spec.unlimited;
                    quota_mode && !matched.limits().iter().any(is_unlimited)
                }
            }
        };
        let mut described = request.descriptors.iter().zip(matches);
        let quota_can_deny = !described.any(|(descriptor, matched)| {
            is_quota(matched) && descriptor.attached.is_none() && is_never_over(matched)
        });
        self.charges.set_caller(request.caller);
        for (index, (descriptor, matched)) in request.descriptors.iter().zip(matches).enumerate() {
            if let Some(pause) = descriptor.pause() {
                let report = ReportedPause { index, descriptor, pause, now_us: at.now_us };
                let paused = matched.rule.and_then(|rule| {
                    let (event, paused) = pauses::read_report(&self.hidden, rule, &report);
                    self.reported_pauses.push(event);
                    paused
                });
                let planned =
                    paused.map_or(Planned::Nothing, |(limit, length_us)| Planned::Paused(limit, length_us));
                self.descriptors.push(planned);
                continue;
            }
            let role = match is_quota(matched) {
                true if quota_can_deny => Role::Quota(self.charges.quota_groups()),
                true => Role::IdleQuota,
                false => Role::Enforce,
            };
            let context = DescriptorContext {
                domain,
                index,
                descriptor,
                cost: request.cost(descriptor),
                returned: descriptor.receipt().map(|receipt| Returned {
                    receipt,
                    actual: request.hits(descriptor),
                    is_hold: descriptor.is_hold,
                }),
                role,
                used_up_check: rules.defaults().used_up_check,
                at,
            };
            let planned = self.plan_descriptor(matched, &context, replacements);
            self.descriptors.push(planned);
        }
        debug_assert!(self.charges.are_merged(), "{:?}", self.charges);
    }

    /// `true` if there are settles, as [`Charges::has_settles`] finds them.
    pub fn has_settles(&self) -> bool {
        !self.settles.is_empty()
    }

    fn plan_descriptor(
        &mut self,
        matched: &Match<'_>,
        context: &DescriptorContext<'_>,
        replacements: &Replacements<'_>,
    ) -> Planned {
        let mut unlimited = None;
        let mut limits = SmallVec::new();
        let hidden = &self.hidden;
        for limit in matched.limits() {
            let kernel = match replacements.planned_use(limit, context.descriptor, context.at.now_us) {
                PlannedUse::Charged(kernel) => kernel,
                PlannedUse::Unlimited => {
                    unlimited = Some(Arc::clone(limit));
                    continue;
                }
                PlannedUse::Replaced(_) | PlannedUse::LeftOut => continue,
            };
            let write_key = |text: &mut String| write_counter_key(text, matched, context, limit, hidden);
            if let Some(returned) = context.returned {
                let index = self.settles.add(&mut self.charges, (limit, kernel), returned, write_key);
                limits.push(PlannedLimit::new(limit, index, None));
                continue;
            }
            let is_hold = context.descriptor.is_hold;
            let charging = if is_hold { Charging::Prepaid } else { limit.spec.charging };
            let cost = match kernel {
                Kernel::Slots(_) => match context.slot_cost(kernel, write_key) {
                    Some(cost) => cost,
                    None => continue,
                },
                _ => cost_against(&kernel, charging, context.cost, context.used_up_check),
            };
            let usual = Charge {
                kernel,
                cost,
                charging,
                role: role(limit, context.role),
                on_store_failure: limit.spec.on_store_failure,
            };
            let (charge, reserve) = match limit.spec.reserve {
                Some(units) => reserved(usual, units, context.descriptor),
                None => (usual, None),
            };
            self.has_announced_limits |= limit.spec.is_announced();
            self.has_queues |= limit.spec.pacing == Pacing::Queue;
            self.gives_receipt |= limit.spec.settle && !is_hold && !charge.cost.is_renewal();
            let index = self.charges.push(charge, write_key);
            if limit.spec.is_leased() && !is_hold {
                self.charges.set_leased(index, limit.id);
            }
            limits.push(PlannedLimit::new(limit, index, reserve));
            let derivations = self.derivations.iter_mut();
            derivations
                .filter(|derivation| derivation.is_of(context.index, limit.id))
                .for_each(|derivation| derivation.charge = Some(index));
        }
        let stat_path = matched.rule.filter(|rule| rule.stat_path != StatPath::OfRule).map(|rule| {
            let values = context.descriptor.entries.iter().enumerate().map(|(index, entry)| {
                let shown = hidden.get(context.index, index).unwrap_or(&entry.value);
                (entry.key.as_str(), shown)
            });
            rule.stat_path(&matched.walk, values)
        });
        match (limits.is_empty(), unlimited) {
            (false, _) => Planned::Limited { rule: matched.rule.cloned(), limits, stat_path },
            (true, Some(limit)) => Planned::Unlimited(limit),
            (true, None) => Planned::Nothing,
        }
    }

    /// How exceptions or tiers changed limits, in descriptor order.
    pub fn derivations(&self) -> &[Derivation] {
        &self.derivations
    }

    /// Every charge once, with the limit of the first descriptor that it belongs to.
    pub fn charged(&self) -> impl Iterator<Item = ChargedLimit<'_>> {
        let mut next_index = 0;
        let is_first = move |charged: &ChargedLimit<'_>| {
            // Charges are numbered in descriptor order, so an index below `next_index` belongs to an earlier
            // descriptor, too.
            let is_first = charged.index >= next_index;
            next_index = next_index.max(charged.index + 1);
            is_first
        };
        self.descriptors.iter().flat_map(|planned| self.charged_limits(planned)).filter(is_first)
    }

    pub(crate) fn charged_limits<'p>(
        &'p self,
        planned: &'p Planned,
    ) -> impl Iterator<Item = ChargedLimit<'p>> {
        let (rule, limits, stat_path) = match planned {
            Planned::Limited { rule, limits, stat_path } => {
                (rule.as_deref(), limits.as_slice(), stat_path.as_deref())
            }
            Planned::Nothing | Planned::Unlimited(_) | Planned::Paused(..) => (None, &[][..], None),
        };
        limits.iter().map(move |planned| {
            let PlannedLimit { ref limit, reserve, .. } = *planned;
            let index = planned.index();
            let Charge { cost, role, .. } = *self.charges.charge(index);
            ChargedLimit { rule, limit, cost, role, reserve, stat_path, index }
        })
    }

    /// The first descriptor that a charge belongs to.
    pub fn descriptor_of(&self, charge: usize) -> Option<usize> {
        self.descriptors.iter().position(|planned| match planned {
            Planned::Limited { limits, .. } => limits.iter().any(|planned| planned.index() == charge),
            Planned::Nothing | Planned::Unlimited(_) | Planned::Paused(..) => false,
        })
    }

    /// The index of a descriptor's charge to a limit, if there is one.
    fn charge_of(&self, descriptor: usize, limit: LimitId) -> Option<usize> {
        let Planned::Limited { limits, .. } = self.descriptors.get(descriptor)? else { return None };
        limits.iter().find(|planned| planned.limit.id == limit).map(PlannedLimit::index)
    }

    /// One limit for each descriptor that has only unlimited limits.
    pub fn unlimited(&self) -> impl Iterator<Item = &Limit> {
        self.descriptors.iter().filter_map(|planned| match planned {
            Planned::Unlimited(limit) => Some(limit.as_ref()),
            Planned::Nothing | Planned::Paused(..) | Planned::Limited { .. } => None,
        })
    }

    /// Every limit with a charge, once per descriptor.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.descriptors
            .iter()
            .flat_map(|planned| match planned {
                Planned::Limited { limits, .. } => limits.as_slice(),
                Planned::Nothing | Planned::Unlimited(_) | Planned::Paused(..) => &[],
            })
            .map(|planned| planned.limit.as_ref())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// An override is out of range.
    #[error("descriptor {index}: {cause}")]
    Override {
        /// Of the descriptor, from 0.
        index: usize,
        cause: LimitError,
    },
}

/// When a request is planned, and the id for its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedAt {
    /// Microseconds since the epoch.
    pub now_us: u64,
    /// Identifies the request's slots: random and below 2^53. Matters only with concurrency.
    pub slot_id: u64,
}

/// For a plan without slots, or without a decision.
impl From<u64> for PlannedAt {
    fn from(now_us: u64) -> Self {
        Self { now_us, slot_id: 0 }
    }
}

/// A request to plan, with the rules of its domain.
#[derive(Clone, Copy)]
pub(crate) struct Planning<'r, 'q> {
    pub(crate) rules: &'r RuleSet,
    pub(crate) domain: &'r DomainRules,
    pub(crate) request: &'q Request,
    pub(crate) at: PlannedAt,
}

pub(crate) struct Match<'r> {
    pub(crate) rule: Option<&'r Arc<Rule>>,
    limits: Limits<'r>,
    pub(crate) walk: Walk<'r>,
}

enum Limits<'r> {
    OfRule(&'r [Arc<Limit>]),
    /// Instead of the rule's limits: an override, or limits that exceptions or tiers changed.
    Own(SmallVec<[Arc<Limit>; 2]>),
}

impl Match<'_> {
    pub(crate) fn limits(&self) -> &[Arc<Limit>] {
        match &self.limits {
            Limits::OfRule(limits) => limits,
            Limits::Own(limits) => limits,
        }
    }

    pub(crate) fn is_quota(&self) -> bool {
        self.rule.is_some_and(|rule| rule.quota)
    }
}

/// In descriptor order.
pub(crate) type Matches<'r> = SmallVec<[Match<'r>; 2]>;

/// Matches a `key_value` string of up to this many bytes without a second allocation. Most are shorter.
const MATCH_TEXT_CAPACITY: usize = 64;

/// Returns the limits of each descriptor. Appends changes by exceptions and tiers to `derivations`.
///
/// # Errors
/// [`PlanError`] if an override is out of range.
pub(crate) fn find_matches<'r>(
    planning: &Planning<'r, '_>,
    hidden: &HiddenValues,
    derivations: &mut Vec<Derivation>,
) -> Result<Matches<'r>, PlanError> {
    let Planning { rules, domain, request, at } = *planning;
    let mut scratch = String::with_capacity(MATCH_TEXT_CAPACITY);
    let mut matches = SmallVec::with_capacity(request.descriptors.len());
    let exceptions = rules.exceptions_of(domain);
    for (index, descriptor) in request.descriptors.iter().enumerate() {
        let own_limit =
            override_limit(rules, descriptor).map_err(|cause| PlanError::Override { index, cause })?;
        let mut matched = match own_limit {
            Some(limit) => {
                let limits = Limits::Own(SmallVec::from_iter([limit]));
                Match { rule: None, limits, walk: Walk::default() }
            }
            None => {
                let walk = domain.walk(&descriptor.entries, &mut scratch);
                let rule = walk.end.and_then(|node| node.rule.as_ref());
                Match { rule, limits: Limits::OfRule(rule.map_or(&[], |rule| &rule.limits)), walk }
            }
        };
        if descriptor.pause().is_some() {
            matched.limits = Limits::OfRule(&[]);
        } else if exceptions.is_some() || matched.rule.is_some_and(|rule| rule.takes_tier) {
            let now_us = at.now_us;
            let changing = Changing { rules, domain, hidden, exceptions, descriptor, index, now_us };
            let changed = changing.change(matched.rule, matched.limits(), &matched.walk, derivations);
            if let Some(limits) = changed {
                matched.limits = Limits::Own(limits);
            }
        }
        matches.push(matched);
    }
    Ok(matches)
}

/// The descriptor's override as a limit. It never shares a counter with a rule's limit.
fn override_limit(rules: &RuleSet, descriptor: &Descriptor) -> Result<Option<Arc<Limit>>, LimitError> {
    let Some(LimitOverride { requests_per_unit, period }) = descriptor.limit else {
        return Ok(None);
    };
    let mut spec = rules.defaults().limit(requests_per_unit.into(), period);
    if spec.is_epoch_month() {
        spec.calendar.clone_from(&rules.compiled.month_calendar);
    }
    let mut limit = Limit::new(spec)?.placed(rules.compiled.next_limit_id(), "override");
    limit.fingerprint = format!("o:{}", limit.fingerprint).into();
    Ok(Some(Arc::new(limit)))
}

/// The names of replaced limits, each with a limit that replaces it.
struct Replacements<'m>(SmallVec<[(&'m str, &'m Arc<Limit>); 2]>);

/// How a limit of a descriptor is used.
enum PlannedUse<'m> {
    Charged(Kernel),
    /// Never counted, always admits.
    Unlimited,
    /// This limit of the request replaces it.
    Replaced(&'m Arc<Limit>),
    /// The descriptor is a settle or a renewal, and the limit keeps what the earlier request recorded.
    LeftOut,
}

impl<'m> Replacements<'m> {
    fn among(matches: &'m [Match<'_>]) -> Self {
        let limits = matches.iter().flat_map(Match::limits);
        let named =
            |limit: &'m Arc<Limit>| limit.spec.replaces.iter().map(move |name| (name.as_str(), limit));
        Self(limits.flat_map(named).collect())
    }

    /// The limit that replaces this one. Unlimited limits and limits blocked by an exception are never replaced.
    fn replacer_of(&self, limit: &Limit) -> Option<&'m Arc<Limit>> {
        if self.0.is_empty() || limit.blocked || limit.spec.unlimited {
            return None;
        }
        let name = limit.spec.name.as_deref()?;
        self.0.iter().find(|(replaced, _)| *replaced == name).map(|(_, replacer)| *replacer)
    }

    /// `true` if the limit bounds the hits of a request that is not a settle.
    fn is_bounding(&self, limit: &Limit) -> bool {
        !limit.spec.unlimited && self.replacer_of(limit).is_none()
    }

    fn planned_use(&self, limit: &Limit, descriptor: &Descriptor, now_us: u64) -> PlannedUse<'m> {
        if let Some(replacer) = self.replacer_of(limit) {
            return PlannedUse::Replaced(replacer);
        }
        match limit.kernel_at(now_us) {
            None => PlannedUse::Unlimited,
            Some(_) if is_left_out(limit, descriptor) => match limit.spec.unlimited {
                true => PlannedUse::Unlimited,
                false => PlannedUse::LeftOut,
            },
            Some(kernel) => PlannedUse::Charged(kernel),
        }
    }
}

/// `true` if the descriptor returns a receipt that does not concern the limit.
fn is_left_out(limit: &Limit, descriptor: &Descriptor) -> bool {
    match descriptor.attached.as_deref() {
        Some(Attached::Receipt(_)) => !limit.spec.settle && !descriptor.is_hold,
        Some(Attached::Renewal(_)) => limit.spec.algorithm != Algorithm::Concurrency,
        Some(Attached::Pause(_)) | None => false,
    }
}

/// What the charges of one descriptor have in common.
struct DescriptorContext<'a> {
    domain: &'a DomainRules,
    index: usize,
    descriptor: &'a Descriptor,
    cost: Cost,
    /// `Some` if the descriptor is a settle.
    returned: Option<Returned<'a>>,
    /// The role of charges to limits that can deny.
    role: Role,
    used_up_check: Verdict,
    at: PlannedAt,
}

impl DescriptorContext<'_> {
    /// Returns the cost charged to slots: one, whatever the hits. `None` for a renewal of a request that took no slot.
    ///
    /// A refund names no slot, so it returns none. A whole cost comes without a later call, so it only asks.
    fn slot_cost(&self, kernel: Kernel, write_key: impl FnOnce(&mut String)) -> Option<Cost> {
        if let Some(receipt) = self.descriptor.renewal() {
            let (receipt, mut key) = (receipt.as_ref().ok()?, String::new());
            write_settled_key(&mut key, write_key, kernel, Some(receipt));
            return receipt.item(&key).map(|item| Cost::renewal(item.grant.id));
        }
        Some(match self.cost {
            cost if cost.is_refund() => Cost::refund(0),
            Cost::PEEK => Cost::PEEK,
            _ if self.descriptor.is_whole_cost && !self.descriptor.is_hold => Cost::PEEK,
            _ => Cost::slot(self.at.slot_id),
        })
    }
}

/// Returns the cost charged to one limit. It differs from `cost` only for a check (0 hits) of a postpaid limit: by
/// default such a check is denied once the limit is exhausted. `defaults.used_up_check` can admit it until the limit is
/// exceeded. A limit of 0 is always exhausted, and has no counter.
fn cost_against(kernel: &Kernel, charging: Charging, cost: Cost, used_up_check: Verdict) -> Cost {
    match kernel {
        _ if cost != Cost::PEEK || used_up_check == Verdict::Over || charging == Charging::Prepaid => cost,
        Kernel::FixedWindow(_) | Kernel::CalendarWindow(_) => Cost::DEBT_PEEK,
        Kernel::Blocked(_) => Cost::refund(0),
        _ => cost,
    }
}

/// Role of a charge to the limit; `denying` is the role that a limit able to deny would get.
fn role(limit: &Limit, denying: Role) -> Role {
    match limit.spec.on_over {
        // A blocking exception denies whatever the mode of the rule.
        _ if limit.blocked => Role::Enforce,
        _ if limit.shadow || limit.spec.unlimited => Role::Shadow,
        OnOver::Deny => denying,
        OnOver::Announce => Role::Announced,
    }
}

fn write_counter_key(
    text: &mut String,
    matched: &Match<'_>,
    context: &DescriptorContext<'_>,
    limit: &Limit,
    hidden: &HiddenValues,
) {
    let key_context = KeyContext {
        domain: &context.domain.name,
        shard_by: matched.rule.map_or(context.domain.shard_by, |rule| rule.shard_by),
        fingerprint: &limit.fingerprint,
    };
    let parts = context.descriptor.entries.iter().enumerate().filter_map(|(index, entry)| {
        let part = match matched.walk.steps.get(index).map(|step| step.node()) {
            Some(node) if node.is_tier => return None,
            Some(node) if node.shares_counter && *node.key == *entry.key => {
                KeyPart::Rule(&entry.key, node.value())
            }
            // The pattern matched a key other than its own. Only the values of one key share a counter.
            Some(node) if node.shares_counter => KeyPart::Pattern(&entry.key, &node.composite),
            _ => match hidden.get(context.index, index) {
                Some(hash) => KeyPart::Hidden(&entry.key, hash),
                None => KeyPart::Request(&entry.key, &entry.value),
            },
        };
        Some(part)
    });
    write_key(text, &key_context, parts);
}
