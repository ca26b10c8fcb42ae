//! The rule sets of a simulation, each with counters of its own.

use crate::engine::{Charges, Decision, Enforcement, Plan, PlanError, Request, RuleSet};
use crate::replay::{MemoryReplay, ReplayStore as _, ReplayStoreError};
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

    /// Decides requests, each with its time and plans, in their order.
    pub fn decide(&mut self, requests: Vec<(u64, Plans)>) -> Result<Vec<Decisions>, ReplayStoreError> {
        let mut outcomes = Vec::with_capacity(self.stores.len());
        for (lane, store) in self.stores.iter_mut().enumerate() {
            let charges: Vec<(u64, &Charges)> =
                requests.iter().map(|(t_us, plans)| (*t_us, &plans[lane].charges)).collect();
            outcomes.push(store.decide(&charges)?.into_iter());
        }
        let mut decided = Vec::with_capacity(requests.len());
        for (_, plans) in requests {
            let outcomes = outcomes.iter_mut().map(|lane| lane.next().unwrap_or_default());
            let mut decisions = plans
                .into_iter()
                .zip(outcomes)
                .map(|(plan, outcomes)| Decision::merge(plan, outcomes, Enforcement::Enforce));
            let Some(judged) = decisions.next() else { continue };
            let in_force = if self.has_rules_in_force { decisions.next() } else { None };
            decided.push(Decisions { judged, in_force, variants: decisions.collect() });
        }
        Ok(decided)
    }

    pub fn evictions(&self) -> u64 {
        self.stores.iter().map(|store| store.stats().evictions).sum()
    }
}
