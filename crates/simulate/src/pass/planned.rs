//! Requests with their plans, as the parsers hand them to the deciding thread.

use std::mem;

use engine::{Charge, ChargedLimit, Charges, Plan, PlanError, Request, RuleSet};
use map::MappedLine;
use smallvec::SmallVec;

use super::options::{RuleSets, Sample, sampled_entry};

/// What the line of a request says besides the request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observation {
    pub t_us: u64,
    pub is_good: bool,
    pub was_limited: bool,
}

/// A request of the log. Many of them wait to be sorted, so it holds only what deciding and counting need.
#[derive(Debug, Default)]
pub(super) struct PlannedRequest {
    pub seen: Observation,
    /// One per rule set, in the order of [`RuleSets::all`].
    pub plans: SmallVec<[RequestPlan; 1]>,
}

/// Boxed, because requests are sorted. Decided ones are reused.
pub(super) type BoxedRequest = Box<PlannedRequest>;

/// What a request is charged by one rule set.
#[derive(Debug, Default)]
pub(super) struct RequestPlan {
    pub charges: Charges,
    /// Every counter of the request once.
    pub counters: SmallVec<[Counter; 1]>,
    /// Indexes of unlimited limits.
    pub unlimited: SmallVec<[usize; 1]>,
}

/// A counter of a request, and the limit that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counter {
    /// Index of the limit in its rule set.
    pub limit: usize,
    /// Index of the last charge to the counter.
    pub charge: usize,
    /// Bytes of the counter key without the limit's fingerprint.
    key_length: usize,
    /// `true` if the rule is in shadow mode, or the limit only announces.
    pub never_denies: bool,
    /// `true` if the counter gets part of its requests, because the others are not in the sample.
    pub is_thinned: bool,
    /// `true` if the limit is the rule's own: neither a tier nor an exception replaces it for the key.
    pub has_rule_number: bool,
}

/// Plans requests by all rule sets.
pub(super) struct Planner<'r> {
    rules: &'r RuleSets,
    sample: Sample,
    /// The last plan, whose memory the next one reuses.
    plan: Plan,
}

impl<'r> Planner<'r> {
    pub fn new(rules: &'r RuleSets, sample: Sample) -> Self {
        Self { rules, sample, plan: Plan::default() }
    }

    /// Plans a request in the memory of an earlier one.
    ///
    /// # Errors
    /// [`PlanError`] if an override is out of range.
    pub fn plan(&mut self, line: &MappedLine, planned: &mut PlannedRequest) -> Result<(), PlanError> {
        planned.seen = Observation { t_us: line.t_us, is_good: line.is_good, was_limited: line.was_limited };
        planned.plans.resize_with(self.rules.all().count(), RequestPlan::default);
        for (rules, planned) in self.rules.all().zip(&mut planned.plans) {
            // The keys are written into the memory of the earlier request.
            mem::swap(&mut self.plan.charges, &mut planned.charges);
            self.plan.refill(rules, &line.request, line.t_us)?;
            if self.sample.is_part() {
                self.thin(&line.request);
            }
            planned.unlimited.clear();
            planned.unlimited.extend(self.plan.unlimited().map(|limit| limit.id.0 as usize));
            planned.counters.clear();
            planned.counters.extend(counters(&self.plan, rules));
            mem::swap(&mut self.plan.charges, &mut planned.charges);
        }
        Ok(())
    }

    /// Scales down the limits of charges whose keys do not have the sampled entry.
    fn thin(&mut self, request: &Request) {
        let mut charges = Charges::default();
        charges.set_caller(self.plan.charges.caller());
        for charged in self.plan.charged() {
            let (key, charge) = self.plan.charges.get(charged.index);
            let descriptor = self.plan.descriptor_of(charged.index);
            let first_entry = descriptor.and_then(|found| request.descriptors.get(found)?.entries.first());
            // The values of a wildcard with `share_threshold` share a counter: its key ends in `%*` instead.
            let is_shared = key.split(['|', '#']).nth(1).is_some_and(|entry| entry.contains("%*"));
            // A request may have the same key with a whole limit, which is another counter.
            let (kernel, end) = if is_shared || first_entry != sampled_entry(request) {
                (charge.kernel.share_of(self.sample.one_in()), SAMPLE)
            } else {
                (charge.kernel, "")
            };
            charges.push(Charge { kernel, ..charge.clone() }, |text| text.extend([key, end]));
        }
        self.plan.charges = charges;
    }
}

/// Suffix for the key of a counter that gets only part of its requests. No fingerprint ends like this.
const SAMPLE: &str = "/sample";

/// Every counter of a request once.
fn counters(plan: &Plan, rules: &RuleSet) -> impl Iterator<Item = Counter> {
    let is_last = |charged: &ChargedLimit<'_>| plan.charges.last_on_counter(charged.index) == charged.index;
    plan.charged().filter(is_last).map(move |charged| {
        let key = plan.charges.get(charged.index).0;
        let is_thinned = key.ends_with(SAMPLE);
        // An override has no rule.
        let of_rule = rules.limits().get(charged.limit.id.0 as usize);
        Counter {
            limit: charged.limit.id.0 as usize,
            charge: charged.index,
            key_length: key.rfind('#').unwrap_or(key.len()),
            never_denies: charged.role.never_denies(),
            is_thinned,
            has_rule_number: of_rule.is_none_or(|rule| rule.quantity == charged.limit.quantity),
        }
    })
}

impl RequestPlan {
    /// The counter key without the limit's fingerprint.
    pub fn key(&self, counter: &Counter) -> &str {
        &self.charges.get(counter.charge).0[..counter.key_length]
    }

    /// `true` if a limit applies to the request, including an unlimited one.
    pub fn has_limit(&self) -> bool {
        !self.charges.is_empty() || !self.unlimited.is_empty()
    }
}
