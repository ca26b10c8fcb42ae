//! Plans many requests by one rule set. Requests whose descriptors meet the same rules share a plan; only their keys
//! are written, into buffers of the caller. So a usual request costs no allocation and no change of a shared count.

use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;

use super::cost::Cost;
use super::key::{without_fingerprint, write_descriptor_key};
use super::matcher::Walk;
use super::plan::{Plan, PlanError, Planned, cost_against, key_parts};
use super::request::Request;
use super::rule_set::{DomainRules, RuleSet};

/// The most shared plans: further requests have a plan of their own.
const MAX_SHARED: usize = 4_096;

/// The rule of each descriptor: its id and 1, or 0 without a rule.
type Shape = SmallVec<[u32; 4]>;

/// Plans requests in turn.
#[derive(Debug)]
pub struct Planner<'r> {
    rules: &'r RuleSet,
    by_shape: HashMap<Shape, usize>,
    shared: Vec<Arc<Plan>>,
    scratch: String,
}

/// The plan of a request. Its charges are as in [`RuleSet::plan`], but for a shared plan the keys and the costs are
/// given beside it.
#[derive(Debug)]
pub enum PlanUse {
    /// The index of a plan in [`Planner::shared`]. It stays the same.
    Shared(usize),
    /// A plan that no other request has: with an override, or with two descriptors that share a counter.
    Own(Box<Plan>),
}

/// Where [`Planner::plan`] appends the text of keys, and a key for each charge.
type KeyBuffers<'k> = (&'k mut String, &'k mut Vec<ChargeKey>);

/// Key and cost of one charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChargeKey {
    /// Where in the text the key starts. It is without the fingerprint of its limit: the limits of one
    /// descriptor have the same text.
    pub start: u32,
    /// Bytes of the key.
    pub length: u32,
    /// The cost of the charge.
    pub cost: Cost,
    /// The index of the first descriptor that the charge belongs to.
    pub descriptor: usize,
}

impl<'r> Planner<'r> {
    /// Plans by `rules`.
    #[must_use]
    pub fn new(rules: &'r RuleSet) -> Self {
        Self { rules, by_shape: HashMap::new(), shared: Vec::new(), scratch: String::new() }
    }

    /// The shared plans so far.
    #[must_use]
    pub fn shared(&self) -> &[Arc<Plan>] {
        &self.shared
    }

    /// Plans a request as [`RuleSet::plan`] does, and appends its keys, one for each charge of the plan.
    ///
    /// # Errors
    /// [`PlanError`] where an override is out of range.
    pub fn plan(&mut self, request: &Request, (text, keys): KeyBuffers<'_>) -> Result<PlanUse, PlanError> {
        let has_override = request.descriptors.iter().any(|descriptor| descriptor.limit.is_some());
        let rules = self.rules;
        let domain = match rules.domain(&request.domain) {
            Some(domain) if !has_override => domain,
            _ => return self.plan_alone(request, (text, keys)),
        };
        let mut walks: SmallVec<[Walk<'r>; 2]> = SmallVec::new();
        let mut shape = Shape::new();
        for descriptor in &request.descriptors {
            let walk = domain.walk(&descriptor.entries, &mut self.scratch);
            let rule = walk.end.and_then(|node| node.rule.as_ref());
            shape.push(rule.map_or(0, |rule| rule.id.0.saturating_add(1)));
            walks.push(walk);
        }
        let index = match self.by_shape.get(&shape) {
            Some(index) => *index,
            None => {
                let plan = rules.plan(request)?;
                if !has_a_charge_for_each_limit(&plan) || self.shared.len() == MAX_SHARED {
                    return Ok(own(plan, (text, keys)));
                }
                self.shared.push(Arc::new(plan));
                self.by_shape.insert(shape, self.shared.len() - 1);
                self.shared.len() - 1
            }
        };
        let before = (text.len(), keys.len());
        if self.write_keys((domain, request), (&walks, &self.shared[index]), (text, keys)) {
            return Ok(PlanUse::Shared(index));
        }
        text.truncate(before.0);
        keys.truncate(before.1);
        self.plan_alone(request, (text, keys))
    }

    fn plan_alone(&self, request: &Request, keys: KeyBuffers<'_>) -> Result<PlanUse, PlanError> {
        Ok(own(self.rules.plan(request)?, keys))
    }

    /// Writes the key of each charge. Returns false if two descriptors have the same one: their charges may then be
    /// one.
    fn write_keys(
        &self,
        (domain, request): (&DomainRules, &Request),
        (walks, plan): (&[Walk<'_>], &Plan),
        (text, keys): KeyBuffers<'_>,
    ) -> bool {
        let hidden = self.rules.hidden_values(Some(domain), request);
        let used_up_check = self.rules.defaults().used_up_check;
        let first_key = keys.len();
        let descriptors = request.descriptors.iter().zip(walks).zip(&plan.descriptors);
        for (index, ((descriptor, walk), planned)) in descriptors.enumerate() {
            let Planned::Limited { rule, limits, .. } = planned else { continue };
            let start = text.len();
            let shard_by = rule.as_ref().map_or(domain.shard_by, |rule| rule.shard_by);
            let parts = key_parts(walk, &descriptor.entries, (index, &hidden));
            write_descriptor_key(text, (&domain.name, shard_by), parts);
            let written = &text[start..];
            let is_written = |key: &ChargeKey| text[key.start as usize..][..key.length as usize] == *written;
            if keys[first_key..].iter().any(is_written) {
                return false;
            }
            let length = bounded(written.len());
            let cost = request.cost(descriptor);
            for (_, charge) in limits {
                let charge = plan.charges.charge(*charge);
                let cost = cost_against((&charge.kernel, charge.charging), cost, used_up_check);
                keys.push(ChargeKey { start: bounded(start), length, cost, descriptor: index });
            }
        }
        true
    }
}

/// Whether no two limits of the plan share a charge: then the limits alone tell the charges.
fn has_a_charge_for_each_limit(plan: &Plan) -> bool {
    plan.limits().count() == plan.charges.len()
}

fn own(plan: Plan, (text, keys): KeyBuffers<'_>) -> PlanUse {
    for (index, (key, charge)) in plan.charges.iter().enumerate() {
        let has_charge = |planned: &Planned| match planned {
            Planned::Limited { limits, .. } => limits.iter().any(|(_, charge)| *charge == index),
            Planned::Nothing | Planned::Unlimited(_) => false,
        };
        let descriptor = plan.descriptors.iter().position(has_charge).unwrap_or_default();
        let (start, key) = (bounded(text.len()), without_fingerprint(key));
        text.push_str(key);
        keys.push(ChargeKey { start, length: bounded(key.len()), cost: charge.cost, descriptor });
    }
    PlanUse::Own(Box::new(plan))
}

fn bounded(length: usize) -> u32 {
    u32::try_from(length).expect("the keys of the requests that a caller plans at once take less than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Algorithm, Caller, Defaults, Descriptor, DomainSpec, Entry, LimitOverride, LimitSpec, NodeSpec,
        Period, RuleSpec, Unit, ValueHashing,
    };

    fn node(key: &str, limits: Vec<LimitSpec>, descriptors: Vec<NodeSpec>) -> NodeSpec {
        let limits: Vec<_> =
            limits.into_iter().map(|limit| crate::Limit::new(limit).expect("a valid limit")).collect();
        let rule = (!limits.is_empty()).then(|| RuleSpec { limits, ..RuleSpec::default() });
        NodeSpec { key: key.to_owned(), rule, descriptors, ..NodeSpec::default() }
    }

    fn rules() -> RuleSet {
        let limit = |units, algorithm| LimitSpec::new(algorithm, units, Period::one(Unit::Minute));
        let two = vec![limit(5, Algorithm::FixedWindow), limit(7, Algorithm::Gcra)];
        let twice = vec![limit(5, Algorithm::FixedWindow), limit(5, Algorithm::FixedWindow)];
        let path =
            node("path", Vec::new(), vec![node("method", vec![limit(9, Algorithm::SlidingLog)], Vec::new())]);
        let descriptors = vec![node("user", two, Vec::new()), node("twice", twice, Vec::new()), path];
        let domain = DomainSpec { domain: "d".to_owned(), descriptors, ..DomainSpec::default() };
        RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules")
    }

    fn request(domain: &str, descriptors: &[&[(&str, &str)]]) -> Request {
        let entry =
            |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
        let descriptor = |entries: &&[(&str, &str)]| Descriptor {
            entries: entries.iter().map(entry).collect(),
            hits: Some(entries.len() as u64 + 1),
            ..Descriptor::default()
        };
        let descriptors = descriptors.iter().map(descriptor).collect();
        Request { domain: domain.to_owned(), hits_addend: 1, descriptors, caller: Caller::default() }
    }

    #[test]
    fn charges_and_keys_are_those_of_a_plan_and_plans_are_shared() {
        let rules = rules();
        let mut planner = Planner::new(&rules);
        let mut with_override = request("d", &[&[("user", "a")]]);
        with_override.descriptors[0].limit =
            Some(LimitOverride { requests_per_unit: 3, period: Period::one(Unit::Hour) });
        let table = [
            (request("d", &[&[("user", "a")]]), Some(0)),
            (request("d", &[&[("user", "b {")]]), Some(0)),
            (request("d", &[&[("user", "a")], &[("path", "/x"), ("method", "GET")]]), Some(1)),
            (request("d", &[&[("user", "c")], &[("path", "/y"), ("method", "PUT")]]), Some(1)),
            (request("d", &[&[("path", "/y"), ("method", "PUT")], &[("user", "c")]]), Some(2)),
            (request("d", &[&[("path", "/y")], &[("none", "")], &[]]), Some(3)),
            // Two descriptors that share their counters, limits that share one, an override, no rules.
            (request("d", &[&[("user", "a")], &[("user", "a")]]), None),
            (request("d", &[&[("user", "a")], &[("user", "b")]]), Some(4)),
            (request("d", &[&[("twice", "a")]]), None),
            (with_override, None),
            (request("e", &[&[("user", "a")]]), None),
        ];
        let (mut text, mut keys) = (String::from("before"), Vec::new());
        for (request, shared) in table {
            keys.clear();
            let planned = planner.plan(&request, (&mut text, &mut keys)).expect("a plan");
            let expected = rules.plan(&request).expect("a plan");
            let plan = match planned {
                PlanUse::Shared(index) => {
                    assert_eq!(Some(index), shared, "{request:?}");
                    Plan::clone(&planner.shared()[index])
                }
                PlanUse::Own(plan) => {
                    assert_eq!(shared, None, "{request:?}");
                    *plan
                }
            };
            let written =
                keys.iter().map(|key| (&text[key.start as usize..][..key.length as usize], key.cost));
            let charges =
                expected.charges.iter().map(|(key, charge)| (without_fingerprint(key), charge.cost));
            assert_eq!(written.collect::<Vec<_>>(), charges.collect::<Vec<_>>(), "{request:?}");
            let labels = |plan: &Plan| -> Vec<_> {
                plan.charged().map(|charged| (charged.index, charged.limit.id)).collect()
            };
            assert_eq!(labels(&plan), labels(&expected), "{request:?}");
        }
        assert!(text.starts_with("before"));
        assert_eq!(planner.shared().len(), 5);
    }
}
