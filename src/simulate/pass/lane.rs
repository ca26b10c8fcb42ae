//! The rule sets of a simulation, each with counters of its own.

use super::agreement::{EarlierDenial, earlier_denial};
use super::observation::Observation;
use crate::engine::{Decision, Enforcement, Plan, PlanError, Request, RuleSet};
use crate::replay::MemoryReplay;
use crate::simulate::variants::Variant;

/// The rule sets that decide every request.
#[derive(Clone, Debug)]
pub struct RuleSets {
    /// The judged rules.
    pub judged: RuleSet,
    /// The rules in force.
    pub in_force: Option<RuleSet>,
    /// The judged rules with every limit as another algorithm.
    pub variants: Vec<Variant>,
}

/// The plans of one request, one for each rule set in the order of [`RuleSets::all`].
pub(super) type Plans = Vec<Plan>;

/// The decisions of one request.
pub(super) struct Decisions {
    pub judged: Decision,
    pub in_force: Option<Decision>,
    pub variants: Vec<Decision>,
    /// Of the rules whose decisions the log has.
    pub earlier_denial: Option<EarlierDenial>,
}

impl Decisions {
    /// The decision to compare with that in the log: the log was written under the rules in force.
    pub fn recorded(&self) -> &Decision {
        self.in_force.as_ref().unwrap_or(&self.judged)
    }
}

impl RuleSets {
    fn all(&self) -> impl Iterator<Item = &RuleSet> {
        let variants = self.variants.iter().map(|variant| &variant.rules);
        [&self.judged].into_iter().chain(&self.in_force).chain(variants)
    }

    /// Plans a request by each rule set.
    pub(super) fn plan(&self, request: &Request) -> Result<Plans, PlanError> {
        let mut plans = Vec::with_capacity(1 + usize::from(self.in_force.is_some()) + self.variants.len());
        for rules in self.all() {
            plans.push(rules.plan(request)?);
        }
        Ok(plans)
    }
}

/// The counters of all rule sets.
pub(super) struct Lanes {
    stores: Vec<MemoryReplay>,
    has_rules_in_force: bool,
}

impl Lanes {
    pub fn new(rules: &RuleSets) -> Self {
        let stores = rules.all().map(|_| MemoryReplay::in_time_order()).collect();
        Self { stores, has_rules_in_force: rules.in_force.is_some() }
    }

    /// Decides requests, each with its plans, in their order.
    pub fn decide(&mut self, requests: Vec<(Observation, Plans)>) -> Vec<(Observation, Decisions)> {
        let recorded_lane = usize::from(self.has_rules_in_force);
        let mut earlier_denials = Vec::with_capacity(requests.len());
        let mut outcomes = Vec::with_capacity(self.stores.len());
        for (lane, store) in self.stores.iter().enumerate() {
            let mut lane_outcomes = Vec::with_capacity(requests.len());
            for (seen, plans) in &requests {
                let charges = &plans[lane].charges;
                if lane == recorded_lane {
                    let looks_back = seen.was_limited;
                    earlier_denials
                        .push(looks_back.then(|| earlier_denial(store, charges, seen.t_us)).flatten());
                }
                lane_outcomes.push(store.decide_one(charges, seen.t_us));
            }
            outcomes.push(lane_outcomes.into_iter());
        }
        let mut decided = Vec::with_capacity(requests.len());
        for ((seen, plans), earlier_denial) in requests.into_iter().zip(earlier_denials) {
            let outcomes = outcomes.iter_mut().map(|lane| lane.next().unwrap_or_default());
            let mut decisions = plans
                .into_iter()
                .zip(outcomes)
                .map(|(plan, outcomes)| Decision::merge(plan, outcomes, Enforcement::Enforce));
            let Some(judged) = decisions.next() else { continue };
            let in_force = if self.has_rules_in_force { decisions.next() } else { None };
            let variants = decisions.collect();
            decided.push((seen, Decisions { judged, in_force, variants, earlier_denial }));
        }
        decided
    }

    pub fn evictions(&self) -> u64 {
        self.stores.iter().map(|store| store.stats().evictions).sum()
    }
}
