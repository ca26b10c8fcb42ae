//! From a request to what the store must decide: matches each descriptor, drops replaced limits, writes the keys.

pub(crate) mod charge;
pub(crate) mod matched;
pub(crate) mod planned;
pub(crate) mod reserve;
pub(crate) mod settle;

use std::sync::Arc;

use smallvec::SmallVec;

use crate::limit::algorithm::{Kernel, Pacing, Verdict};
use crate::limit::key::{KeyContext, KeyPart, write_key};
use crate::limit::role::Role;
use crate::limit::{Charging, Limit, LimitError, Quantity};
use crate::request::plan::charge::{Charge, Charges};
use crate::request::plan::matched::Match;
use crate::request::plan::planned::{Planned, PlannedLimit};
use crate::request::plan::reserve::reserved;
use crate::request::plan::settle::{Returned, Settles};
use crate::request::{Cost, Descriptor, Request};
use crate::rules::exceptions::Derivation;
use crate::rules::rule_set::stat_path::stat_path;
use crate::rules::rule_set::{DomainRules, RuleSet};
use crate::rules::secret::HiddenValues;

#[cfg(test)]
mod tests;

/// Why a request cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The override of a descriptor is out of range.
    #[error("descriptor {index}: {cause}")]
    Override {
        /// The index of the descriptor.
        index: usize,
        cause: LimitError,
    },
}

/// The charges of one request, and the descriptors that they belong to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub charges: Charges,
    /// One per descriptor, in order.
    pub(crate) descriptors: SmallVec<[Planned; 2]>,
    /// What is shown in place of the request's secret values.
    pub(crate) hidden: HiddenValues,
    /// Whether an answer can announce one of the limits.
    pub(crate) has_announced_limits: bool,
    /// Whether one of the limits is a queue.
    pub(crate) has_queues: bool,
    /// How the limits that exceptions or tiers have changed came about.
    pub(crate) derivations: Vec<Derivation>,
    /// The charges that are settles.
    pub(crate) settles: Settles,
    /// Whether a charge, which is no settle, is to a limit with `settle`.
    pub(crate) gives_receipt: bool,
}

impl RuleSet {
    /// Finds the limits of each descriptor of `request` at `now_us` (microseconds since the epoch), and the charges
    /// that the store must decide.
    ///
    /// # Errors
    /// [`PlanError`] where an override is out of range.
    pub fn plan(&self, request: &Request, now_us: u64) -> Result<Plan, PlanError> {
        let mut plan = Plan::default();
        self.plan_into(request, now_us, &mut plan)?;
        Ok(plan)
    }

    /// Like [`RuleSet::plan`], but uses the memory of an earlier plan again.
    ///
    /// # Errors
    /// [`PlanError`] where an override is out of range. The contents of the plan are then not specified.
    pub fn plan_into(&self, request: &Request, now_us: u64, plan: &mut Plan) -> Result<(), PlanError> {
        let domain = self.domain(&request.domain);
        plan.charges.clear();
        plan.descriptors.clear();
        plan.has_announced_limits = false;
        plan.has_queues = false;
        plan.derivations.clear();
        plan.hidden = self.hidden_values(domain, request);
        plan.settles.clear();
        plan.gives_receipt = false;
        let Some(domain) = domain else {
            plan.descriptors.extend(request.descriptors.iter().map(|_| Planned::Nothing));
            return Ok(());
        };
        let quota_mode = self.defaults().quota_mode;
        let matches = self.matches(domain, request, now_us, plan)?;
        let replaced: SmallVec<[&str; 2]> = matches
            .iter()
            .flat_map(Match::limits)
            .flat_map(|limit| &limit.spec.replaces)
            .map(String::as_str)
            .collect();
        // A request is denied by its quota descriptors only if all of them are over. A descriptor whose limits never
        // deny is never over. Neither is a descriptor without a limit, which is a quota descriptor in quota
        // mode. If the request has one that is never over, the quota descriptors deny nothing.
        let is_quota = |matched: &Match<'_>| quota_mode || matched.is_quota();
        let is_never_over = |matched: &Match<'_>| {
            let mut counted = matched.limits().iter().filter(|limit| is_counted(limit, &replaced)).peekable();
            match counted.peek() {
                Some(_) => counted.all(|limit| limit.never_denies()),
                None => {
                    let is_unlimited = |limit: &Arc<Limit>| limit.quantity == Quantity::Unlimited;
                    quota_mode && !matched.limits().iter().any(is_unlimited)
                }
            }
        };
        let mut described = request.descriptors.iter().zip(&matches);
        let quota_can_deny = !described.any(|(descriptor, matched)| {
            is_quota(matched) && descriptor.receipt.is_none() && is_never_over(matched)
        });
        plan.charges.set_caller(request.caller);
        for (index, (descriptor, matched)) in request.descriptors.iter().zip(&matches).enumerate() {
            let role = match is_quota(matched) {
                true if quota_can_deny => Role::Quota(plan.charges.quota_groups()),
                true => Role::NonBinding,
                false => Role::Enforce,
            };
            let context = DescriptorContext {
                domain,
                index,
                descriptor,
                cost: request.cost(descriptor),
                returned: descriptor
                    .receipt
                    .as_deref()
                    .map(|receipt| Returned { receipt, actual: request.hits(descriptor) }),
                role,
                used_up_check: self.defaults().used_up_check,
                now_us,
            };
            let planned = plan.add(matched, &context, &replaced);
            plan.descriptors.push(planned);
        }
        debug_assert!(plan.charges.are_merged(), "{:?}", plan.charges);
        Ok(())
    }
}

/// Whether another limit of the request replaces this one. An unlimited limit is never replaced, and neither is one
/// that a row of the exceptions blocks.
fn is_replaced(limit: &Limit, replaced: &[&str]) -> bool {
    let is_replaceable = limit.quantity != Quantity::Unlimited && !limit.blocked;
    let has_name = |name: &str| is_replaceable && replaced.contains(&name);
    limit.spec.name.as_deref().is_some_and(has_name)
}

fn is_counted(limit: &Limit, replaced: &[&str]) -> bool {
    limit.quantity != Quantity::Unlimited && !is_replaced(limit, replaced)
}

/// What the charges of one descriptor have in common.
struct DescriptorContext<'a> {
    domain: &'a DomainRules,
    /// The index of the descriptor.
    index: usize,
    descriptor: &'a Descriptor,
    cost: Cost,
    /// `None` unless the descriptor is a settle.
    returned: Option<Returned<'a>>,
    /// The role of the charges to limits that can deny.
    role: Role,
    used_up_check: Verdict,
    now_us: u64,
}

/// The cost that is charged to one limit. It differs from `cost` only for a check (0 hits) of a postpaid limit. By
/// default such a check is denied once the limit is used up. With `defaults.used_up_check` it can be admitted until the
/// limit is exceeded. A limit of 0 is used up from the start, and has no counter.
fn cost_against(kernel: &Kernel, charging: Charging, cost: Cost, used_up_check: Verdict) -> Cost {
    match kernel {
        _ if cost != Cost::PEEK || used_up_check == Verdict::Over || charging == Charging::Prepaid => cost,
        Kernel::FixedWindow(_) | Kernel::CalendarWindow(_) => Cost::DEBT_PEEK,
        Kernel::Blocked(_) => Cost::refund(0),
        _ => cost,
    }
}

impl Plan {
    /// Whether charges are settles, which a store decides one by one ([`Charges::parts`]).
    #[must_use]
    pub fn has_settles(&self) -> bool {
        !self.settles.is_empty()
    }

    fn add(&mut self, matched: &Match<'_>, context: &DescriptorContext<'_>, replaced: &[&str]) -> Planned {
        let mut unlimited = None;
        let mut limits = SmallVec::new();
        let hidden = &self.hidden;
        for limit in matched.limits() {
            if is_replaced(limit, replaced) {
                continue;
            }
            let Some(kernel) = limit.kernel_at(context.now_us) else {
                unlimited = Some(Arc::clone(limit));
                continue;
            };
            let write_key = |text: &mut String| write_counter_key(text, matched, context, limit, hidden);
            if let Some(returned) = context.returned {
                // A limit without `settle` keeps what the estimate recorded.
                if limit.spec.settle {
                    let index = self.settles.add(&mut self.charges, (limit, kernel), returned, write_key);
                    limits.push(PlannedLimit::new(limit, index, None));
                }
                continue;
            }
            let usual = Charge {
                kernel,
                cost: cost_against(&kernel, limit.spec.charging, context.cost, context.used_up_check),
                charging: limit.spec.charging,
                role: limit.role(context.role),
                on_store_failure: limit.spec.on_store_failure,
            };
            let (charge, reserve) = match limit.spec.reserve {
                Some(units) => reserved(usual, units, context.descriptor),
                None => (usual, None),
            };
            self.has_announced_limits |= limit.spec.is_announced();
            self.has_queues |= limit.spec.pacing == Pacing::Queue;
            self.gives_receipt |= limit.spec.settle;
            let index = self.charges.push(charge, write_key);
            limits.push(PlannedLimit::new(limit, index, reserve));
            let derivations = self.derivations.iter_mut();
            derivations
                .filter(|derivation| derivation.is_of(context.index, limit.id))
                .for_each(|derivation| derivation.charge = Some(index));
        }
        let stat_path = matched.rule.and_then(|rule| {
            let values = context.descriptor.entries.iter().enumerate().map(|(index, entry)| {
                let shown = hidden.get(context.index, index).unwrap_or(&entry.value);
                (entry.key.as_str(), shown)
            });
            stat_path(rule, &matched.walk, values)
        });
        match (limits.is_empty(), unlimited) {
            (false, _) => Planned::Limited { rule: matched.rule.cloned(), limits, stat_path },
            (true, Some(limit)) => Planned::Unlimited(limit),
            (true, None) => Planned::Nothing,
        }
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
