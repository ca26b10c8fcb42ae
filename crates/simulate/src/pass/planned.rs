//! The planned requests of a block, without memory of their own for each.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{ChargeKey, PlanError, PlanUse, Planner, Request, Verdict};

use super::observation::Observation;
use super::rule_sets::RuleSets;
use super::sample::{Sample, sampled_entry};
use super::template::{ChargedKey, Template, Thinned, text_hash};
use crate::map::MappedLine;

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

    /// As [`Charge::is_independent`](engine::Charge::is_independent).
    pub fn is_independent(&self, charge: usize) -> bool {
        self.template.plan.charges.charge(charge).charging.is_independent(self.keys[charge].cost)
    }

    /// As [`Charge::is_recorded`](engine::Charge::is_recorded).
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

/// A shared plan, and [`Thinned::charges`].
type TemplateKind = (usize, u64);

/// Plans the requests of blocks by all rule sets.
pub(super) struct Planners<'r> {
    by_rule_set: Vec<RuleSetPlanner<'r>>,
}

struct RuleSetPlanner<'r> {
    planner: Planner<'r>,
    sample: Sample,
    /// Of the shared plans.
    templates: HashMap<TemplateKind, Arc<Template>>,
    /// The indexes that the templates have in the current block.
    in_block: HashMap<TemplateKind, u32>,
    /// The last one.
    last: Option<(TemplateKind, u32)>,
    /// Of the last request.
    charges: Vec<ChargeKey>,
}

impl<'r> Planners<'r> {
    pub fn new(rules: &'r RuleSets, sample: Sample) -> Self {
        let planner = |rules| RuleSetPlanner {
            planner: Planner::new(rules),
            sample,
            templates: HashMap::new(),
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
        let thinned = self.thinned(&line.request, block);
        let template = match planned {
            PlanUse::Shared(index) => self.shared(index, thinned, block),
            PlanUse::Own(plan) => block.add(Arc::new(Template::new(Arc::new(*plan), thinned))),
        };
        block.plans.push(template);
        let own_first = block.keys.len();
        let mut uses_new_text = self.charges.is_empty();
        for ChargeKey { start, length, cost, .. } in &self.charges {
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

    /// The charges whose counters do not get all of their requests: their keys do not have the sampled entry.
    fn thinned(&self, request: &Request, block: &PlannedBlock) -> Thinned {
        let one_in = self.sample.one_in();
        if !self.sample.is_part() {
            return Thinned { charges: 0, one_in };
        }
        let sampled = sampled_entry(request);
        let is_thinned = |key: &ChargeKey| {
            let first_entry = request.descriptors[key.descriptor].entries.first();
            let text = &block.text[key.start as usize..][..key.length as usize];
            // The values of a wildcard with `share_threshold` share a counter: its key has `%*` in place of the end.
            let is_shared = text.split('|').nth(1).is_some_and(|entry| entry.contains("%*"));
            first_entry != sampled || is_shared
        };
        let bits = self.charges.iter().enumerate().filter(|(_, key)| is_thinned(key));
        Thinned { charges: bits.fold(0, |bits, (charge, _)| bits | 1 << charge.min(63)), one_in }
    }

    /// The index in the block of the template of a shared plan.
    fn shared(&mut self, plan: usize, thinned: Thinned, block: &mut PlannedBlock) -> u32 {
        let kind = (plan, thinned.charges);
        if let Some((last, template)) = self.last
            && last == kind
        {
            return template;
        }
        let plan = &self.planner.shared()[plan];
        let new = || Arc::new(Template::new(Arc::clone(plan), thinned));
        let template = self.templates.entry(kind).or_insert_with(new);
        let template = *self.in_block.entry(kind).or_insert_with(|| block.add(Arc::clone(template)));
        self.last = Some((kind, template));
        template
    }
}

fn bounded(length: usize) -> u32 {
    u32::try_from(length).expect("the keys of a block take less than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{
        Algorithm, Defaults, Descriptor, DomainSpec, Entry, Limit, LimitSpec, NodeSpec, Period, RuleSet,
        RuleSpec, Unit, ValueHashing,
    };

    fn rules(units: u32) -> RuleSet {
        let limit = |algorithm| {
            Limit::new(LimitSpec::new(algorithm, units, Period::one(Unit::Minute))).expect("a valid limit")
        };
        let limits = vec![limit(Algorithm::FixedWindow), limit(Algorithm::Gcra)];
        let node = |key: &str| NodeSpec {
            key: key.to_owned(),
            rule: Some(RuleSpec { limits: limits.clone(), ..RuleSpec::default() }),
            ..NodeSpec::default()
        };
        let descriptors = vec![node("user"), node("path")];
        let domain = DomainSpec { domain: "d".to_owned(), descriptors, ..DomainSpec::default() };
        RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules")
    }

    fn line(t_us: u64, descriptors: &[(&str, &str)]) -> MappedLine {
        let mut line = MappedLine::default();
        line.t_us = t_us;
        line.request.domain = "d".to_owned();
        line.request.descriptors = descriptors
            .iter()
            .map(|(key, value)| Descriptor {
                entries: vec![Entry { key: (*key).to_owned(), value: (*value).to_owned() }],
                hits: Some(t_us),
                ..Descriptor::default()
            })
            .collect();
        line
    }

    /// Time, limits, counters, keys and costs by each rule set.
    fn shown(request: RequestPlans<'_>) -> String {
        let plan = |plan: RequestPlan<'_>| {
            let charges = 0..plan.keys.len();
            let keys = charges.map(|charge| (plan.key(charge), plan.counter(charge), plan.keys[charge].cost));
            format!("{:?} {:?}", plan.template.limits, keys.collect::<Vec<_>>())
        };
        format!("{} {:?}", request.seen.t_us, request.by_rule_set().map(plan).collect::<Vec<_>>())
    }

    #[test]
    fn a_copied_request_is_the_same_and_equal_keys_are_stored_once() {
        let rules = RuleSets { judged: rules(5), in_force: Some(rules(7)), variants: Vec::new() };
        let mut planners = Planners::new(&rules, Sample::ALL);
        let mut block = planners.start_block();
        let lines = [
            line(1, &[("user", "a")]),
            line(2, &[("user", "b"), ("path", "/")]),
            line(3, &[("none", "c")]),
            line(4, &[("user", "a"), ("user", "a")]),
        ];
        for line in &lines {
            planners.plan(line, &mut block).expect("a plan");
        }
        // Once for two limits of two rule sets; a plan that is not shared writes the key of each charge.
        assert_eq!(block.text, "{d|user=a}{d|user=b}{d|path=/}{d|user=a}{d|user=a}");
        let all: Vec<String> = (0..block.len()).map(|index| shown(block.request(index))).collect();
        assert_eq!(all[0].matches("{d|user=a}").count(), 4, "{}", all[0]);
        let mut copied = PlannedBlock::default();
        for index in [3, 1, 0, 2, 1] {
            let place = copied.copy(&block, index);
            assert_eq!(shown(copied.request(place)), all[index]);
        }
        assert_eq!(copied.len(), 5);
    }
}
