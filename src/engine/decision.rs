//! The answer to a request: a status per descriptor and one code for all.

use std::sync::Arc;

use smallvec::SmallVec;

use super::algorithm::Attempt;
use super::plan::Planned;
use super::{
    Charge, Cost, CounterSnapshot, DecidedBy, Limit, Outcome, Outcomes, Plan, RetryAfter, Role, Rule, Verdict,
};

/// May it go ahead?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It may.
    Ok,
    /// It may not.
    OverLimit,
}

impl Code {
    /// Its name in the contract.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::OverLimit => "OVER_LIMIT",
        }
    }
}

/// Whether answers bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// They do.
    Enforce,
    /// Dark launch: everything is counted and reported as if, but the overall code is always OK.
    Shadow,
}

/// A decided request.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// One code for all descriptors.
    pub overall: Code,
    /// Whether the overall code would have been over limit without [`Enforcement::Shadow`].
    pub shadowed: bool,
    plan: Plan,
    outcomes: Outcomes,
}

/// The answer for one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Status<'d> {
    /// Its own code, whatever the others say.
    pub code: Code,
    /// What it rests on.
    pub applied: Applied<'d>,
}

/// What decided a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum Applied<'d> {
    /// No rule.
    Nothing,
    /// A limit that never denies.
    Unlimited(&'d Limit),
    /// A limit that was not asked, because another one holds the request back for certain.
    Skipped,
    /// The binding limit: over the limit, the one to wait longest for; else the one nearest to its end.
    Limited(LimitResult<'d>),
}

/// One limit and what became of the cost against it.
#[derive(Clone, Copy, Debug)]
pub struct LimitResult<'d> {
    /// The rule it belongs to; `None` for a limit that came with the request.
    pub rule: Option<&'d Rule>,
    /// The limit.
    pub limit: &'d Limit,
    /// What was asked of its counter.
    pub cost: Cost,
    /// Whether it was over, and where it stands.
    pub outcome: &'d Outcome,
}

impl LimitResult<'_> {
    /// Whether its rule only counts.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.rule.is_some_and(|rule| rule.shadow)
    }
}

impl Decision {
    /// Puts plan and outcomes together. `outcomes` are those of `plan.charges`, one each.
    #[must_use]
    pub fn merge(plan: Plan, mut outcomes: Outcomes, enforcement: Enforcement) -> Self {
        let held = plan.charges.is_denied(|place| outcomes.by_charge[place].verdict);
        for (charge, outcome) in plan.charges.as_slice().iter().zip(&mut outcomes.by_charge) {
            // Who is held back has no place in a queue.
            if charge.cost.changes() && !charge.is_recorded(outcome.verdict, held) {
                outcome.report.delay_us = 0;
            }
        }
        let shadowed = held && enforcement == Enforcement::Shadow;
        let overall = if held && !shadowed { Code::OverLimit } else { Code::Ok };
        Self { overall, shadowed, plan, outcomes }
    }

    /// The statuses, one per descriptor, in order.
    pub fn statuses(&self) -> impl ExactSizeIterator<Item = Status<'_>> {
        self.plan.descriptors.iter().map(|planned| match planned {
            Planned::Nothing => Status { code: Code::Ok, applied: Applied::Nothing },
            Planned::Unlimited { limit, .. } => Status { code: Code::Ok, applied: Applied::Unlimited(limit) },
            Planned::Limited { rule, limits } => self.limited(rule.as_deref(), limits),
        })
    }

    fn limited<'d>(&'d self, rule: Option<&'d Rule>, limits: &'d [(Arc<Limit>, usize)]) -> Status<'d> {
        let judged = |(limit, place): &'d (Arc<Limit>, usize)| self.judged(rule, limit, *place);
        let asked = limits.iter().map(judged).filter(|judged| judged.outcome.basis != DecidedBy::Skipped);
        let Some(binding) = asked.reduce(more_binding) else {
            return Status { code: Code::Ok, applied: Applied::Skipped };
        };
        let over = binding.outcome.verdict == Verdict::Over && !binding.is_shadow();
        let code = if over { Code::OverLimit } else { Code::Ok };
        Status { code, applied: Applied::Limited(binding) }
    }

    fn judged<'d>(&'d self, rule: Option<&'d Rule>, limit: &'d Limit, place: usize) -> LimitResult<'d> {
        LimitResult { rule, limit, cost: self.charge(place).cost, outcome: &self.outcomes.by_charge[place] }
    }

    fn charge(&self, place: usize) -> &Charge {
        &self.plan.charges.as_slice()[place]
    }

    /// Every counter that was asked, once, for counting what happened.
    pub fn limit_results(&self) -> impl Iterator<Item = LimitResult<'_>> {
        let mut next = 0;
        let met_first = move |&(_, _, place): &(_, _, usize)| {
            // Places rise; a lower one is a counter that an earlier descriptor has met already.
            let first = place >= next;
            next = next.max(place + 1);
            first
        };
        let limits = self.plan.descriptors.iter().flat_map(limits_of).filter(met_first);
        limits.map(|(rule, limit, place)| self.judged(rule, limit, place))
    }

    /// Least wait after which the same request would be admitted, if nothing else happens; [`RetryAfter::Now`] when it
    /// is: every limit that enforces must fit, and one of the quota groups.
    #[must_use]
    pub fn retry_after(&self) -> RetryAfter {
        if self.overall == Code::Ok {
            return RetryAfter::Now;
        }
        let mut enforced = RetryAfter::Now;
        let mut groups: SmallVec<[RetryAfter; 4]> =
            SmallVec::from_elem(RetryAfter::Now, usize::from(self.plan.charges.quota_groups()));
        for (charge, outcome) in self.plan.charges.as_slice().iter().zip(&self.outcomes.by_charge) {
            let wait = match charge.role {
                Role::Enforce => &mut enforced,
                Role::Quota(group) => &mut groups[usize::from(group)],
                Role::NonBinding => continue,
            };
            *wait = (*wait).max(again_after(charge, outcome));
        }
        enforced.max(groups.into_iter().min().unwrap_or(RetryAfter::Now))
    }

    /// The rules whose descriptors are not over their limit, unlimited ones included, in the order of the descriptors.
    pub fn rules_within_limit(&self) -> impl Iterator<Item = &Rule> {
        self.plan.descriptors.iter().zip(self.statuses()).filter_map(|(planned, status)| match planned {
            Planned::Limited { rule, .. } | Planned::Unlimited { rule, .. } if status.code == Code::Ok => {
                rule.as_deref()
            }
            _ => None,
        })
    }
}

/// When the same cost would fit the next time, which is not at once where it has been recorded although the request is
/// held back.
fn again_after(charge: &Charge, outcome: &Outcome) -> RetryAfter {
    match outcome.basis {
        DecidedBy::Store(CounterSnapshot { now_us, facts }) if charge.is_recorded(outcome.verdict, true) => {
            charge.kernel.wait(&facts, Attempt { now_us, cost: charge.cost })
        }
        _ => outcome.report.retry_after,
    }
}

fn limits_of(planned: &Planned) -> impl Iterator<Item = (Option<&Rule>, &Limit, usize)> {
    let (rule, limits) = match planned {
        Planned::Limited { rule, limits } => (rule.as_deref(), limits.as_slice()),
        Planned::Nothing | Planned::Unlimited { .. } => (None, &[][..]),
    };
    limits.iter().map(move |(limit, place)| (rule, limit.as_ref(), *place))
}

/// Of two limits on one descriptor, the one its status reports; the first on a tie.
fn more_binding<'d>(first: LimitResult<'d>, second: LimitResult<'d>) -> LimitResult<'d> {
    let wait = |judged: &LimitResult<'_>| judged.outcome.report.retry_after;
    let second_binds = match (first.outcome.verdict, second.outcome.verdict) {
        (Verdict::Over, Verdict::Over) => wait(&second) > wait(&first),
        (Verdict::Fits, Verdict::Over) => true,
        (Verdict::Over, Verdict::Fits) => false,
        (Verdict::Fits, Verdict::Fits) => is_nearer_its_end(&second, &first),
    };
    if second_binds { second } else { first }
}

/// Compares remaining/limit without dividing.
fn is_nearer_its_end(a: &LimitResult<'_>, b: &LimitResult<'_>) -> bool {
    let share = |of: &LimitResult<'_>, other: &LimitResult<'_>| {
        u128::from(of.outcome.report.remaining) * u128::from(other.limit.spec.max_cost())
    };
    share(a, b) < share(b, a)
}
