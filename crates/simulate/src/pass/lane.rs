//! The rule sets of a simulation, each with counters of its own.

use engine::algorithm::{Attempt, Blocked, Kernel};
use engine::{CounterSnapshot, DecidedBy, Decision, Outcome, Outcomes, Quantity, RuleSet, Verdict};
use smallvec::SmallVec;

use super::counters::Counters;
use super::planned::{RequestPlan, RequestPlans};
use super::rule_sets::RuleSets;
use super::template::CountedLimit;

/// A request as one rule set has decided it.
#[derive(Debug)]
pub(super) struct Decided<'b> {
    pub plan: RequestPlan<'b>,
    pub is_denied: bool,
    /// One for each charge.
    pub verdicts: SmallVec<[Verdict; 4]>,
}

impl Decided<'_> {
    /// Whether the charge of a limit is over it.
    pub fn is_over(&self, counted: &CountedLimit) -> bool {
        self.verdicts[counted.charge] == Verdict::Over
    }
}

/// The decisions about one request.
pub(super) struct Decisions<'b> {
    pub judged: Decided<'b>,
    pub in_force: Option<Decided<'b>>,
    pub variants: SmallVec<[Decided<'b>; 5]>,
}

impl<'b> Decisions<'b> {
    /// The decision to compare with that in the log: the log was written under the rules in force.
    pub fn recorded(&self) -> &Decided<'b> {
        self.in_force.as_ref().unwrap_or(&self.judged)
    }
}

/// The counters of one rule set.
#[derive(Debug)]
pub(super) struct Lane {
    counters: Counters,
    /// Of the limits of the rules.
    kernels: Vec<Kernel>,
}

impl Lane {
    fn new(rules: &RuleSet) -> Self {
        // An unlimited limit has no counter, so its kernel is never used.
        let unused = Kernel::Blocked(Blocked::new(1));
        let kernel = |quantity| if let Quantity::Limited(kernel) = quantity { kernel } else { unused };
        let kernels = rules.limits().iter().map(|limit| kernel(limit.quantity)).collect();
        Self { counters: Counters::new(), kernels }
    }

    /// The verdict on a charge at a time, as its counter is now. Changes nothing.
    pub fn verdict(&self, plan: RequestPlan<'_>, charge: usize, now_us: u64) -> Verdict {
        let attempt = Attempt { now_us, cost: plan.keys[charge].cost };
        let kernel = &plan.template.kernels[charge];
        self.counters.with_state(plan.counter(charge), |state| kernel.verdict(state, attempt))
    }

    /// Decides a request as a store does ([`Store::decide`](engine::Store::decide)).
    fn decide<'b>(&mut self, plan: RequestPlan<'b>, now_us: u64) -> Decided<'b> {
        let charges = &plan.template.plan.charges;
        let mut verdicts: SmallVec<[Verdict; 4]> = SmallVec::new();
        for index in 0..charges.len() {
            verdicts.push(self.verdict(plan, index, now_us));
            if plan.is_independent(index) {
                self.record_if_due(plan, index, (verdicts[index], false), now_us);
            }
        }
        let is_denied = charges.is_denied(|index| verdicts[index] == Verdict::Over);
        for (index, verdict) in verdicts.iter().enumerate() {
            if !plan.is_independent(index) {
                self.record_if_due(plan, index, (*verdict, is_denied), now_us);
            }
        }
        Decided { plan, is_denied, verdicts }
    }

    fn record_if_due(
        &mut self,
        plan: RequestPlan<'_>,
        index: usize,
        (verdict, is_denied): (Verdict, bool),
        now_us: u64,
    ) {
        if !plan.is_recorded(index, verdict, is_denied) {
            return;
        }
        let cost = plan.keys[index].cost;
        // The counter of a part of a limit, or of a limit of a request, has another kernel than `self.kernels`.
        let limit = plan.template.limits[index];
        let is_whole = self.kernels.get(limit) == Some(&plan.template.kernels[index]);
        let limit = u32::try_from(limit).ok().filter(|_| is_whole);
        let kernel = &plan.template.kernels[index];
        let attempt = Attempt { now_us, cost };
        self.counters.record(plan.counter(index), (kernel, limit), attempt, &self.kernels);
    }

    /// The whole decision about the last request that was decided.
    pub fn decision(&self, decided: &Decided<'_>, now_us: u64) -> Decision {
        let plan = decided.plan;
        let outcome = |(index, verdict): (usize, &Verdict)| {
            let kernel = &plan.template.kernels[index];
            let attempt = Attempt { now_us, cost: plan.keys[index].cost };
            let reading =
                self.counters.with_state(plan.counter(index), |state| kernel.reading(state, attempt));
            let report = kernel.report(&reading, attempt, *verdict);
            let decided_by = DecidedBy::Store(CounterSnapshot { now_us, reading });
            Outcome { verdict: *verdict, report, decided_by }
        };
        let outcomes: Outcomes = decided.verdicts.iter().enumerate().map(outcome).collect();
        plan.template.decision(plan.keys, outcomes)
    }
}

/// The counters of all rule sets.
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    has_rules_in_force: bool,
}

impl Lanes {
    pub fn new(rules: &RuleSets) -> Self {
        Self { lanes: rules.all().map(Lane::new).collect(), has_rules_in_force: rules.in_force.is_some() }
    }

    /// The counters of the rules whose decisions the log has.
    pub fn recorded(&self) -> &Lane {
        &self.lanes[usize::from(self.has_rules_in_force)]
    }

    /// The plan of a request by the rules whose decisions the log has.
    pub fn recorded_plan<'b>(&self, request: &RequestPlans<'b>) -> Option<RequestPlan<'b>> {
        request.by_rule_set().nth(usize::from(self.has_rules_in_force))
    }

    /// Decides a request by all rule sets.
    pub fn decide<'b>(&mut self, request: RequestPlans<'b>) -> Option<Decisions<'b>> {
        let t_us = request.seen.t_us;
        let mut decided =
            self.lanes.iter_mut().zip(request.by_rule_set()).map(|(lane, plan)| lane.decide(plan, t_us));
        let judged = decided.next()?;
        let in_force = if self.has_rules_in_force { decided.next() } else { None };
        Some(Decisions { judged, in_force, variants: decided.collect() })
    }

    pub fn evictions(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.counters.evictions()).sum()
    }
}
