//! The planned requests of a block, without memory of their own for each.

use std::collections::HashMap;
use std::sync::Arc;

use super::observation::Observation;
use super::rule_sets::RuleSets;
use super::template::{ChargedKey, Template, text_hash};
use crate::engine::{ChargeKey, PlanError, PlanUse, Planner, Verdict};
use crate::simulate::map::MappedLine;

/// Requests with their plans by each rule set.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedBlock {
    requests: Vec<PlannedRequest>,
    /// For each request and rule set the index of its template.
    plans: Vec<u32>,
    templates: Vec<Arc<Template>>,
    /// For each request, rule set and charge.
    keys: Vec<ChargedKey>,
    text: String,
    rule_sets: usize,
}

#[derive(Clone, Copy, Debug)]
struct PlannedRequest {
    seen: Observation,
    /// The index of its first key.
    first_key: u32,
}

/// One request of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestPlans<'b> {
    pub seen: Observation,
    block: &'b PlannedBlock,
    plans: &'b [u32],
    keys: &'b [ChargedKey],
}

/// The plan of a request by one rule set.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestPlan<'b> {
    pub template: &'b Template,
    /// One for each charge.
    pub keys: &'b [ChargedKey],
    text: &'b str,
}

impl<'b> RequestPlan<'b> {
    /// The key of a charge, without the fingerprint of its limit.
    pub fn key(&self, charge: usize) -> &'b str {
        let key = &self.keys[charge];
        &self.text[key.start as usize..][..key.length as usize]
    }

    /// As [`Charge::is_independent`](crate::engine::Charge::is_independent).
    pub fn is_independent(&self, charge: usize) -> bool {
        self.template.plan.charges.charge(charge).charging.is_independent(self.keys[charge].cost)
    }

    /// As [`Charge::is_recorded`](crate::engine::Charge::is_recorded).
    pub fn is_recorded(&self, charge: usize, verdict: Verdict, is_denied: bool) -> bool {
        let charging = self.template.plan.charges.charge(charge).charging;
        charging.is_recorded(self.keys[charge].cost, verdict, is_denied)
    }

    /// The identity of the counter of a charge.
    pub fn counter(&self, charge: usize) -> u64 {
        self.template.counter(charge, &self.keys[charge])
    }
}

impl<'b> RequestPlans<'b> {
    /// The plans of all rule sets, in the order of [`RuleSets::all`].
    pub fn by_rule_set(&self) -> impl Iterator<Item = RequestPlan<'b>> + use<'b> {
        let (block, mut keys) = (self.block, self.keys);
        self.plans.iter().map(move |template| {
            let template = &*block.templates[*template as usize];
            let (own, rest) = keys.split_at(template.salts.len());
            keys = rest;
            RequestPlan { template, keys: own, text: &block.text }
        })
    }
}

impl PlannedBlock {
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// The times of the requests, in their order.
    pub fn times(&self) -> impl Iterator<Item = u64> {
        self.requests.iter().map(|request| request.seen.t_us)
    }

    pub fn request(&self, index: usize) -> RequestPlans<'_> {
        let PlannedRequest { seen, first_key } = self.requests[index];
        let plans = &self.plans[index * self.rule_sets..][..self.rule_sets];
        RequestPlans { seen, block: self, plans, keys: &self.keys[first_key as usize..] }
    }

    fn text_of(&self, key: &ChargedKey) -> &str {
        &self.text[key.start as usize..][..key.length as usize]
    }

    fn add(&mut self, template: Arc<Template>) -> u32 {
        self.templates.push(template);
        bounded(self.templates.len() - 1)
    }

    /// Appends a request of another block, and returns its index here.
    pub fn copy(&mut self, from: &Self, index: usize) -> usize {
        let request = from.request(index);
        self.rule_sets = from.rule_sets;
        self.requests.push(PlannedRequest { seen: request.seen, first_key: bounded(self.keys.len()) });
        for (plan, template) in request.by_rule_set().zip(request.plans) {
            for (charge, key) in plan.keys.iter().enumerate() {
                let start = bounded(self.text.len());
                self.text.push_str(plan.key(charge));
                self.keys.push(ChargedKey { start, ..*key });
            }
            let template = &from.templates[*template as usize];
            let place = self.add(Arc::clone(template));
            self.plans.push(place);
        }
        self.requests.len() - 1
    }
}

/// Plans the requests of blocks by all rule sets.
pub(super) struct Planners<'r> {
    by_rule_set: Vec<RuleSetPlanner<'r>>,
}

struct RuleSetPlanner<'r> {
    planner: Planner<'r>,
    /// Of the shared plans.
    templates: Vec<Arc<Template>>,
    /// The indexes that the templates have in the current block.
    in_block: HashMap<usize, u32>,
    /// The last one.
    last: Option<(usize, u32)>,
    /// Of the last request.
    charges: Vec<ChargeKey>,
}

impl<'r> Planners<'r> {
    pub fn new(rules: &'r RuleSets) -> Self {
        let planner = |rules| RuleSetPlanner {
            planner: Planner::new(rules),
            templates: Vec::new(),
            in_block: HashMap::new(),
            last: None,
            charges: Vec::new(),
        };
        Self { by_rule_set: rules.all().map(planner).collect() }
    }

    /// An empty block. Requests must be planned into the last one that was started.
    pub fn start_block(&mut self) -> PlannedBlock {
        for planner in &mut self.by_rule_set {
            planner.in_block.clear();
            planner.last = None;
        }
        PlannedBlock { rule_sets: self.by_rule_set.len(), ..PlannedBlock::default() }
    }

    /// Plans a request, and appends it to its block.
    ///
    /// # Errors
    /// [`PlanError`] where an override is out of range. The block is then as it was.
    pub fn plan(&mut self, line: &MappedLine, block: &mut PlannedBlock) -> Result<(), PlanError> {
        let before = (block.plans.len(), block.keys.len(), block.text.len());
        for planner in &mut self.by_rule_set {
            if let Err(error) = planner.plan(line, block, before.1) {
                block.plans.truncate(before.0);
                block.keys.truncate(before.1);
                block.text.truncate(before.2);
                return Err(error);
            }
        }
        let seen = Observation { t_us: line.t_us, is_good: line.is_good, was_limited: line.was_limited };
        block.requests.push(PlannedRequest { seen, first_key: bounded(before.1) });
        Ok(())
    }
}

impl RuleSetPlanner<'_> {
    /// Plans by one rule set. `first_key` is the first key of the request.
    fn plan(
        &mut self,
        line: &MappedLine,
        block: &mut PlannedBlock,
        first_key: usize,
    ) -> Result<(), PlanError> {
        self.charges.clear();
        let text_start = block.text.len();
        let planned = self.planner.plan(&line.request, (&mut block.text, &mut self.charges))?;
        let template = match planned {
            PlanUse::Shared(index) => self.shared(index, block),
            PlanUse::Own(plan) => block.add(Arc::new(Template::new(Arc::new(*plan)))),
        };
        block.plans.push(template);
        let own_first = block.keys.len();
        let mut uses_new_text = self.charges.is_empty();
        for ChargeKey { start, length, cost } in &self.charges {
            let text = &block.text[*start as usize..][..*length as usize];
            // Rule sets and limits mostly have the same keys.
            let same = block.keys[first_key..].iter().find(|key| block.text_of(key) == text).copied();
            uses_new_text |= same.is_none_or(|same| same.start as usize >= text_start);
            let new = || ChargedKey { hash: text_hash(text), start: *start, length: *length, cost: *cost };
            let key = same.map_or_else(new, |same| ChargedKey { cost: *cost, ..same });
            block.keys.push(key);
        }
        debug_assert_eq!(block.keys.len() - own_first, block.templates[template as usize].salts.len());
        if !uses_new_text {
            block.text.truncate(text_start);
        }
        Ok(())
    }

    /// The index in the block of the template of a shared plan.
    fn shared(&mut self, plan: usize, block: &mut PlannedBlock) -> u32 {
        if let Some((last, template)) = self.last
            && last == plan
        {
            return template;
        }
        for plan in &self.planner.shared()[self.templates.len()..] {
            self.templates.push(Arc::new(Template::new(Arc::clone(plan))));
        }
        let add = || block.add(Arc::clone(&self.templates[plan]));
        let template = *self.in_block.entry(plan).or_insert_with(add);
        self.last = Some((plan, template));
        template
    }
}

fn bounded(length: usize) -> u32 {
    u32::try_from(length).expect("the keys of a block take less than 4 GiB")
}
