//! The answer to a request: a status per descriptor and one code for all.

pub(crate) mod booking;
pub(crate) mod level;

use std::sync::Arc;

use smallvec::SmallVec;
use strum::IntoStaticStr;

use crate::limit::algorithm::{Attempt, Cost, Grant, Kernel, RetryAfter, Verdict};
use crate::limit::announce::Announced;
use crate::limit::{Limit, Quantity};
use crate::request::Request;
use crate::request::plan::charge::{Charge, Charges, CounterSnapshot, DecidedBy, Outcome, Outcomes, Role};
use crate::request::plan::pauses::{PauseCause, PauseEvent, paused_value};
use crate::request::plan::reserve::ReserveKind;
use crate::request::plan::settle::{Settle, SettleResult};
use crate::request::plan::{ChargedLimit, Plan, Planned};
use crate::request::receipt::Receipt;
use crate::rules::exceptions::derivation::Derivation;
use crate::rules::rule_set::Rule;

/// Whether a request, or one of its descriptors, may proceed. The names are those of Envoy's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE", const_into_str)]
pub enum Code {
    Ok,
    OverLimit,
}

/// Whether denials take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    Enforce,
    /// Dark launch: counts and reports as usual, but the overall code is always OK.
    Shadow,
}

/// A decided request: its plan with the outcomes of all charges.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub overall: Code,
    /// `true` if only [`Enforcement::Shadow`] kept the overall code from being over limit.
    pub shadowed: bool,
    pub(crate) plan: Plan,
    pub(crate) outcomes: Outcomes,
}

#[derive(Clone, Copy, Debug)]
pub struct Status<'d> {
    /// The code of this descriptor alone.
    pub code: Code,
    pub applied: Applied<'d>,
}

/// What decided a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum Applied<'d> {
    /// No rule, or all limits of the rule are replaced.
    Nothing,
    /// A limit that never denies.
    Unlimited(&'d Limit),
    /// A reported pause: the limit that blocks the value from now on, and for how many microseconds.
    Paused(&'d Limit, u64),
    /// The deciding limit among those that can deny: the one over its limit with the longest wait, or if none is over,
    /// the one with the smallest share left. If none can deny, the same choice among all limits.
    Limited(LimitResult<'d>),
}

#[derive(Clone, Copy, Debug)]
pub struct LimitResult<'d> {
    /// `None` for an override.
    pub rule: Option<&'d Rule>,
    pub limit: &'d Limit,
    pub cost: Cost,
    pub role: Role,
    /// `Some` for the check or the charge of a limit with `reserve`.
    pub reserve: Option<ReserveKind>,
    pub outcome: &'d Outcome,
}

impl LimitResult<'_> {
    /// `true` if the limit is counted and reported, but denies nothing ([`Role::never_denies`]).
    pub fn never_denies(&self) -> bool {
        self.role.never_denies()
    }

    /// `true` if the descriptor denies only together with all quota descriptors of the request.
    pub fn is_quota(&self) -> bool {
        matches!(self.role, Role::Quota(_) | Role::IdleQuota)
    }

    /// Returns what the answer announces about the limit. `None` for a shadow limit; for a limit that denies the hit,
    /// because its status shows that; and for a failure policy's answer, because usage is unknown.
    pub fn announced(&self) -> Option<Announced> {
        let spec = &self.limit.spec;
        let is_known = !matches!(self.outcome.decided_by, DecidedBy::Policy(_));
        if !spec.is_announced() || self.role == Role::Shadow || !is_known {
            return None;
        }
        if self.outcome.verdict == Verdict::Over {
            return (self.role == Role::Announced).then_some(Announced::Over);
        }
        // The capacity of a limit of 0 is its burst, none of which can be used.
        let Quantity::Limited(kernel) = self.limit.quantity else { return None };
        let (capacity, near) = (kernel.max_cost(), spec.near?);
        (capacity.saturating_sub(self.outcome.report.remaining) > near.part_of(capacity))
            .then_some(Announced::Near)
    }
}

impl Decision {
    /// Combines a plan with one outcome for each of `plan.charges`.
    pub fn merge(mut plan: Plan, mut outcomes: Outcomes, enforcement: Enforcement) -> Self {
        let is_denied = plan.charges.is_denied(|index| outcomes.is_over(index));
        for (charge, outcome) in plan.charges.values().zip(&mut outcomes.by_charge) {
            // A hit that is not recorded does not wait, so its delay is 0.
            if charge.cost.changes_counter() && !charge.is_recorded(outcome.verdict, is_denied) {
                outcome.report.delay_us = 0;
            }
        }
        if plan.has_settles() {
            finish_settles(&mut plan, &mut outcomes);
        }
        let shadowed = is_denied && enforcement == Enforcement::Shadow;
        let overall = if is_denied && !shadowed { Code::OverLimit } else { Code::Ok };
        Self { overall, shadowed, plan, outcomes }
    }

    /// Charges to release the slots that the request renewed.
    pub fn renewed(&self) -> Charges {
        self.plan.charges.filter_map(|_, charge| charge.cost.is_renewal().then(|| charge.release()))
    }

    /// One status per descriptor, in order.
    pub fn statuses(&self) -> impl ExactSizeIterator<Item = Status<'_>> {
        self.plan.descriptors.iter().map(|planned| match planned {
            Planned::Nothing => Status { code: Code::Ok, applied: Applied::Nothing },
            Planned::Unlimited(limit) => Status { code: Code::Ok, applied: Applied::Unlimited(limit) },
            Planned::Paused(limit, length_us) => {
                Status { code: Code::Ok, applied: Applied::Paused(limit, *length_us) }
            }
            Planned::Limited { .. } => self.limited(planned),
        })
    }

    fn limited<'d>(&'d self, planned: &'d Planned) -> Status<'d> {
        let mut unlimited = None;
        let results = self.plan.charged_limits(planned).filter_map(|charged| {
            if charged.limit.spec.unlimited {
                unlimited = Some(charged.limit);
                return None;
            }
            Some(self.result(charged))
        });
        let Some(deciding) = results.reduce(more_decisive) else {
            return Status {
                code: Code::Ok,
                applied: unlimited.map_or(Applied::Nothing, Applied::Unlimited),
            };
        };
        let is_over = deciding.outcome.verdict == Verdict::Over && !deciding.never_denies();
        let code = if is_over { Code::OverLimit } else { Code::Ok };
        Status { code, applied: Applied::Limited(deciding) }
    }

    fn result<'d>(&'d self, charged: ChargedLimit<'d>) -> LimitResult<'d> {
        let ChargedLimit { rule, limit, cost, role, reserve, index, .. } = charged;
        LimitResult { rule, limit, cost, role, reserve, outcome: &self.outcomes.by_charge[index] }
    }

    /// Returns the hash shown instead of an entry's value; `None` if the value is not secret.
    pub fn hidden_value(&self, descriptor: usize, entry: usize) -> Option<&str> {
        self.plan.hidden.get(descriptor, entry)
    }

    /// How exceptions or tiers changed limits, in descriptor order.
    pub fn derivations(&self) -> &[Derivation] {
        self.plan.derivations()
    }

    /// Every charge once, with the limit of the first descriptor that it belongs to.
    pub fn charges(&self) -> impl Iterator<Item = (ChargedLimit<'_>, LimitResult<'_>)> {
        self.plan.charged().map(|charged| (charged, self.result(charged)))
    }

    /// Lists the pauses in the request, in descriptor order.
    pub fn reported_pauses(&self) -> &[PauseEvent] {
        &self.plan.reported_pauses
    }

    /// Lists the denials by limits with `penalty`, once per counter. Does not list limits blocked by a row, or answers
    /// from a failure policy. `request` is the decided one.
    pub fn offences(&self, request: &Request) -> impl Iterator<Item = PauseEvent> {
        let is_offence = |(charged, result): &(ChargedLimit<'_>, LimitResult<'_>)| {
            let is_over = result.outcome.verdict == Verdict::Over && charged.role == Role::Enforce;
            is_over && !charged.limit.blocked && !matches!(result.outcome.decided_by, DecidedBy::Policy(_))
        };
        let denying = self.charges().filter(move |_| self.overall == Code::OverLimit).filter(is_offence);
        denying.filter_map(move |(charged, _)| {
            let (rule, penalty) = (charged.rule?, charged.limit.spec.penalty.as_ref()?);
            let descriptor = self.plan.descriptor_of(charged.index)?;
            let entries = request.descriptors.get(descriptor)?.entries.as_slice();
            let value = paused_value(&self.plan.hidden, (descriptor, entries), rule, &penalty.target)?;
            let counter = self.plan.charges.get(charged.index).0.into();
            let cause = PauseCause::Offence { value, penalty: Arc::clone(penalty), counter };
            let rule_label = Arc::clone(&charged.limit.label);
            Some(PauseEvent { domain: Arc::clone(&rule.domain), rule: rule_label, cause })
        })
    }

    /// `true` if the answer may say more than its statuses: a queue delay, a receipt or an announced limit.
    pub fn tells_caller(&self) -> bool {
        self.plan.has_queues || self.plan.gives_receipt || self.plan.has_announced_limits
    }

    /// `true` if the answer may announce a limit: `on_over: announce` or `near` applies to the request.
    pub fn has_announced_limits(&self) -> bool {
        self.plan.has_announced_limits
    }

    pub fn charged_counter(&self, charge: usize) -> (&str, Kernel) {
        let (key, charge) = self.plan.charges.get(charge);
        (key, charge.kernel)
    }

    /// One result per counter, as it is after the request.
    pub fn limit_results(&self) -> impl Iterator<Item = LimitResult<'_>> {
        self.counter_results().map(|(_, result)| result)
    }

    /// [`Decision::limit_results`] with counter keys.
    pub(crate) fn counter_results<'d>(&'d self) -> impl Iterator<Item = (&'d str, LimitResult<'d>)> {
        let charges = &self.plan.charges;
        let is_last = |charged: &ChargedLimit<'_>| charges.last_on_counter(charged.index) == charged.index;
        let keyed = |charged: ChargedLimit<'d>| (charges.get(charged.index).0, self.result(charged));
        self.plan.charged().filter(is_last).map(keyed)
    }

    /// Shortest wait after which the same request would be admitted if nothing else happens; [`RetryAfter::Now`] if it
    /// is admitted. Every enforcing limit must fit, and one of the quota groups.
    pub fn retry_after(&self) -> RetryAfter {
        if self.overall == Code::Ok {
            return RetryAfter::Now;
        }
        let charges = &self.plan.charges;
        let mut enforced = RetryAfter::Now;
        let mut groups: SmallVec<[RetryAfter; 4]> =
            SmallVec::from_elem(RetryAfter::Now, usize::from(charges.quota_groups()));
        for (index, charge) in charges.values().enumerate() {
            let wait = match charge.role {
                Role::Enforce => &mut enforced,
                Role::Quota(group) => &mut groups[usize::from(group)],
                Role::Shadow | Role::Announced | Role::Booked | Role::IdleQuota | Role::Settle => continue,
            };
            // A repeated request charges the counter as it is now, one charge after the other. A limit of 0 has no
            // counter that another charge could return units to.
            let (last, cost) = if charge.kernel.has_counter() {
                (charges.last_on_counter(index), charges.cost_so_far(index))
            } else {
                (index, charge.cost)
            };
            let outcome = &self.outcomes.by_charge[last];
            let is_alone = last == index && cost == charge.cost;
            let has_changed = !is_alone || charge.is_recorded(outcome.verdict, true);
            *wait = (*wait).max(if has_changed {
                wait_for_next(charge.kernel, cost, outcome)
            } else {
                outcome.report.retry_after
            });
        }
        enforced.max(groups.into_iter().min().unwrap_or(RetryAfter::Now))
    }

    /// The rules of descriptors within their limits, in descriptor order, without unlimited descriptors.
    pub fn rules_within_limit(&self) -> impl Iterator<Item = &Rule> {
        let descriptors = self.plan.descriptors.iter().zip(self.statuses());
        let within = descriptors.filter(|(_, status)| {
            status.code == Code::Ok && !matches!(status.applied, Applied::Unlimited(_))
        });
        within.filter_map(|(planned, _)| match planned {
            Planned::Limited { rule, .. } => rule.as_deref(),
            Planned::Nothing | Planned::Unlimited(_) | Planned::Paused(..) => None,
        })
    }

    /// Returns the receipt of an admitted request with at least one `settle` limit. It has an item for each charge to
    /// such a limit that fits and that the store recorded. Calls `nonce` only if there is a receipt.
    pub fn receipt(&self, nonce: impl FnOnce() -> u64) -> Option<Receipt> {
        if self.plan.gives_receipt { self.receipt_with(nonce, Self::grant_in_receipt) } else { None }
    }

    /// [`Decision::receipt`] for a reservation: with an item for each charge that fits and was recorded.
    pub fn receipt_of_hold(&self, nonce: impl FnOnce() -> u64) -> Option<Receipt> {
        self.receipt_with(nonce, Self::grant)
    }

    fn receipt_with(
        &self,
        nonce: impl FnOnce() -> u64,
        grant: impl Fn(&Self, &ChargedLimit<'_>) -> Option<Grant>,
    ) -> Option<Receipt> {
        if self.overall == Code::OverLimit {
            return None;
        }
        let mut receipt = Receipt::new(nonce());
        for charged in self.plan.charged() {
            if let Some(grant) = grant(self, &charged) {
                let (key, charge) = self.plan.charges.get(charged.index);
                receipt.add(key, charge.cost.taken(), grant);
            }
        }
        Some(receipt)
    }

    /// Returns this charge's item in the receipt; `None` without one.
    pub fn grant_in_receipt(&self, charged: &ChargedLimit<'_>) -> Option<Grant> {
        if charged.limit.spec.settle && self.overall != Code::OverLimit { self.grant(charged) } else { None }
    }

    /// Returns the charges that release the slots in the receipt: nobody returns a receipt that did not arrive. `None`
    /// without slots.
    pub fn release_of_slots(&self) -> Option<Charges> {
        if !self.plan.gives_receipt {
            return None;
        }
        let mut release = Charges::default();
        for charged in self.plan.charged() {
            let (key, charge) = self.plan.charges.get(charged.index);
            if matches!(charge.kernel, Kernel::Slots(_)) && self.grant_in_receipt(&charged).is_some() {
                release.push_apart(charge.release(), key);
            }
        }
        (!release.is_empty()).then_some(release)
    }

    /// The grant, if the charge fits and the store recorded it.
    fn grant(&self, charged: &ChargedLimit<'_>) -> Option<Grant> {
        let (_, charge) = self.plan.charges.get(charged.index);
        let granted = &self.outcomes.by_charge[charged.index];
        let (DecidedBy::Store(CounterSnapshot { reading, .. })
        | DecidedBy::Lease(CounterSnapshot { reading, .. })) = &granted.decided_by
        else {
            return None;
        };
        let is_recorded =
            granted.verdict == Verdict::Fits && charge.is_recorded(granted.verdict, self.shadowed);
        let units = charge.cost.taken();
        if !is_recorded || units == 0 || charge.role == Role::Settle {
            return None;
        }
        charge.grant(reading)
    }

    /// The settle of the charge at `index`, if it is one.
    pub fn settle(&self, index: usize) -> Option<&Settle> {
        self.plan.settles.at(index)
    }
}

/// Fills in the settles' results. Their outcomes become those of a decision that denies nothing.
fn finish_settles(plan: &mut Plan, outcomes: &mut Outcomes) {
    for settle in plan.settles.iter_mut() {
        let charge = plan.charges.charge(settle.charge);
        let outcome = &mut outcomes.by_charge[settle.charge];
        settle.result = settle_outcome(charge, outcome, settle.is_readable());
    }
}

/// Returns what a settle did and changes its outcome to report a cost that fits.
fn settle_outcome(charge: &Charge, outcome: &mut Outcome, is_readable: bool) -> SettleResult {
    let DecidedBy::Store(CounterSnapshot { now_us, reading }) = outcome.decided_by else {
        return SettleResult::Lost;
    };
    let attempt = Attempt { now_us, cost: charge.cost };
    let is_made = outcome.verdict == Verdict::Fits;
    let settled = Attempt { now_us, cost: Cost::refund(0) };
    outcome.verdict = Verdict::Fits;
    outcome.report = charge.kernel.report(&reading, settled, Verdict::Fits);
    if charge.cost.refunded() > 0 {
        let has_returned = is_made && charge.kernel.has_returned(&reading, attempt);
        return if has_returned { SettleResult::Returned } else { SettleResult::Kept };
    }
    if is_readable { SettleResult::Charged } else { SettleResult::Unreadable }
}

/// When a cost would fit into a counter as it is after the request. If a denied request recorded a charge, it consumed
/// units, so its wait is longer than the reported `retry_after`.
fn wait_for_next(kernel: Kernel, cost: Cost, outcome: &Outcome) -> RetryAfter {
    outcome.decided_by.snapshot().map_or(outcome.report.retry_after, |CounterSnapshot { now_us, reading }| {
        kernel.wait(&reading, Attempt { now_us, cost })
    })
}

/// Picks the limit that the status of a descriptor reports; on a tie the first. A limit that never denies is reported
/// only if no limit of the descriptor can deny.
fn more_decisive<'d>(first: LimitResult<'d>, second: LimitResult<'d>) -> LimitResult<'d> {
    let wait = |result: &LimitResult<'_>| result.outcome.report.retry_after;
    let second_decides = match (first.outcome.verdict, second.outcome.verdict) {
        _ if first.never_denies() != second.never_denies() => first.never_denies(),
        (Verdict::Over, Verdict::Over) => wait(&second) > wait(&first),
        (Verdict::Fits, Verdict::Over) => true,
        (Verdict::Over, Verdict::Fits) => false,
        (Verdict::Fits, Verdict::Fits) => has_less_left(&second, &first),
    };
    if second_decides { second } else { first }
}

/// `true` if `a` has the smaller share of its limit left; compares remaining/limit without dividing. A limit of 0 has
/// no share, whatever its burst.
fn has_less_left(a: &LimitResult<'_>, b: &LimitResult<'_>) -> bool {
    let capacity =
        |limit: &Limit| if let Quantity::Limited(kernel) = limit.quantity { kernel.max_cost() } else { 0 };
    let scaled = |result: &LimitResult<'_>, other: &LimitResult<'_>| {
        u128::from(result.outcome.report.remaining) * u128::from(capacity(other.limit))
    };
    scaled(a, b) < scaled(b, a)
}

#[cfg(test)]
mod tests;
