//! Decides requests by each rule set, on separate counters.

use base::clock::SystemClock;
use engine::{Decision, Enforcement, Outcomes, Plan, RetryAfter};
use store::memory::{MemoryOptions, MemoryStore};

use super::options::RuleSets;
use super::planned::{PlannedRequest, RequestPlan};

/// Most counters of a rule set, in about 440 MB: a simulation of one rule set takes less than 1 GB.
pub(super) const MAX_COUNTERS: usize = 2_750_000;
/// How long a counter is kept after it equals an unused one, because verdicts for earlier times are needed.
const LOOK_BACK_US: u64 = 1_000_000;

/// The counters of one rule set. Times never step back.
pub(super) type Counters = MemoryStore<SystemClock>;

pub(super) fn new_counters() -> Counters {
    let options = MemoryOptions { max_keys: MAX_COUNTERS, grace_us: LOOK_BACK_US };
    MemoryStore::reproducible(options, SystemClock)
}

/// A request as decided by one rule set.
#[derive(Debug)]
pub(super) struct Decided<'r> {
    pub plan: &'r RequestPlan,
    pub is_denied: bool,
    outcomes: Outcomes,
}

pub(super) struct Decisions<'r> {
    pub judged: Decided<'r>,
    pub in_force: Option<Decided<'r>>,
    pub variants: Vec<Decided<'r>>,
}

impl Decided<'_> {
    pub fn is_over(&self, charge: usize) -> bool {
        self.outcomes.is_over(charge)
    }

    /// The shortest wait after which the same request would be admitted.
    pub fn retry_after(&self) -> RetryAfter {
        let mut plan = Plan::default();
        plan.charges = self.plan.charges.clone();
        Decision::merge(plan, self.outcomes.clone(), Enforcement::Enforce).retry_after()
    }
}

impl<'r> Decisions<'r> {
    /// The decision to compare with the log: that of [`RuleSets::of_log`].
    pub fn of_log(&self) -> &Decided<'r> {
        self.in_force.as_ref().unwrap_or(&self.judged)
    }
}

/// The counters of all rule sets, in the order of [`RuleSets::all`].
pub(super) struct AllCounters {
    by_rule_set: Vec<Counters>,
    has_in_force: bool,
}

impl AllCounters {
    pub fn new(rules: &RuleSets) -> Self {
        let by_rule_set = rules.all().map(|_| new_counters()).collect();
        Self { by_rule_set, has_in_force: rules.in_force.is_some() }
    }

    /// The counters of [`RuleSets::of_log`], and its plan of a request.
    pub fn of_log<'r>(&self, request: &'r PlannedRequest) -> (&Counters, &'r RequestPlan) {
        let place = usize::from(self.has_in_force);
        (&self.by_rule_set[place], &request.plans[place])
    }

    /// Decides a request by all rule sets.
    pub fn decide<'r>(&self, request: &'r PlannedRequest) -> Decisions<'r> {
        let decide = |(counters, plan): (&Counters, &'r RequestPlan)| {
            let charges = &plan.charges;
            let outcomes = counters.decide_at(charges, request.seen.t_us);
            Decided { plan, is_denied: charges.is_denied(|index| outcomes.is_over(index)), outcomes }
        };
        let mut decided = self.by_rule_set.iter().zip(&request.plans).map(decide);
        Decisions {
            judged: decided.next().expect("the judged rules are the first"),
            in_force: if self.has_in_force { decided.next() } else { None },
            variants: decided.collect(),
        }
    }

    /// Counters evicted because there were too many: after that, limits admit too much.
    pub fn evictions(&self) -> u64 {
        self.by_rule_set.iter().map(|counters| counters.stats().evictions).sum()
    }
}
