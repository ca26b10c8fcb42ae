//! Plans of requests.

use super::explanation::{Explanation, LimitUse};
use super::*;
use crate::request::receipt::Receipt;
use crate::{
    Algorithm, Caller, Defaults, Descriptor, DomainSpec, Entry, LimitSpec, NodeSpec, Period, RuleSpec, Unit,
    ValueHashing,
};

fn limit(units: u64, settle: bool) -> Limit {
    let spec = LimitSpec::new(Algorithm::FixedWindow, units, Period::one(Unit::Minute));
    Limit::new(LimitSpec { settle, ..spec }).expect("a valid limit")
}

fn node(key: &str, limits: Vec<Limit>) -> NodeSpec {
    let rule = Some(RuleSpec { limits, ..RuleSpec::default() });
    NodeSpec { key: key.to_owned(), rule, ..NodeSpec::default() }
}

fn compiled(descriptors: Vec<NodeSpec>) -> RuleSet {
    let domain = DomainSpec { domain: "d".to_owned(), descriptors, ..DomainSpec::default() };
    RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules")
}

/// A request with a descriptor of one entry for each key and value.
fn request(domain: &str, entries: &[(&str, &str)]) -> Request {
    let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
    let descriptor = |pair| Descriptor { entries: vec![entry(pair)], ..Descriptor::default() };
    let descriptors = entries.iter().map(descriptor).collect();
    Request { domain: domain.to_owned(), hits_addend: 1, descriptors, caller: Caller::default() }
}

#[test]
fn a_plan_that_was_used_before_is_that_of_the_request() {
    let rules = compiled(vec![
        node("user", vec![limit(5, false), limit(7, false)]),
        node("path", vec![limit(9, false)]),
    ]);
    let (user, path) = (("user", "a"), ("path", "a"));
    let mut used = Plan::default();
    for (domain, entries) in [("d", &[user, user][..]), ("d", &[path]), ("e", &[user]), ("d", &[])] {
        let request = request(domain, entries);
        used.refill(&rules, &request, 0).expect("a plan");
        assert_eq!(Ok(&used), Plan::new(&rules, &request, 0).as_ref(), "{request:?}");
    }
}

#[test]
fn a_charge_is_found_by_its_descriptor_and_limit_and_back() {
    let rules = compiled(vec![
        node("user", vec![limit(5, false), limit(7, false)]),
        node("path", vec![limit(9, false)]),
    ]);
    let request = request("d", &[("user", "a"), ("path", "a"), ("user", "a")]);
    let explained = Explanation::new(&rules, &request, 0).expect("a plan");
    let uses = explained
        .descriptors
        .iter()
        .map(|descriptor| descriptor.limits.iter().map(|limit| limit.planned.clone()).collect::<Vec<_>>());
    let charged = |charges: &[usize]| charges.iter().copied().map(LimitUse::Charged).collect::<Vec<_>>();
    assert_eq!(uses.collect::<Vec<_>>(), [charged(&[0, 1]), charged(&[2]), charged(&[0, 1])]);
    let descriptors = [0, 1, 2, 3].map(|charge| explained.plan.descriptor_of(charge));
    assert_eq!(descriptors, [Some(0), Some(0), Some(1), None]);
}

#[test]
fn a_settle_charges_only_limits_with_settle() {
    let rules = compiled(vec![node("user", vec![limit(5, false), limit(7, true)])]);
    let mut request = request("d", &[("user", "a")]);
    let uses = |request: &Request| {
        let explained = Explanation::new(&rules, request, 0).expect("a plan");
        let limits = explained.descriptors[0].limits.iter();
        (explained.plan.has_settles(), limits.map(|limit| limit.planned.clone()).collect::<Vec<_>>())
    };
    assert_eq!(uses(&request), (false, vec![LimitUse::Charged(0), LimitUse::Charged(1)]));
    request.descriptors[0].receipt = Some(Box::new(Ok(Receipt::new(7))));
    assert_eq!(uses(&request), (true, vec![LimitUse::NotSettled, LimitUse::Charged(0)]));
}

#[test]
fn values_that_share_a_counter_share_it_for_each_key_that_the_pattern_matches() {
    let shared =
        NodeSpec { value: "b_*".to_owned(), share_threshold: true, ..node("a", vec![limit(5, false)]) };
    let rules = compiled(vec![shared]);
    let request = request("d", &[("a", "b_1"), ("a", "b_2"), ("a_b", "1"), ("a_b", "2")]);
    let plan = Plan::new(&rules, &request, 0).expect("a plan");
    let charges = plan.charges.iter().map(|(key, charge)| (key, charge.cost.units()));
    let keys = ["{d|a=b_*%*}#fw:60000000", "{d|a_b=a_b_*%**}#fw:60000000"];
    assert_eq!(charges.collect::<Vec<_>>(), keys.map(|key| (key, 2)));
}

/// A limit that never denies makes quota descriptors idle only if it is that of a quota descriptor.
#[test]
fn a_quota_denies_beside_a_descriptor_that_is_no_quota_and_never_denies() {
    let roles = |shadow_is_quota| {
        let with = |key, quota, shadow| {
            let limits = vec![limit(5, false)];
            NodeSpec {
                rule: Some(RuleSpec { limits, quota, shadow, ..RuleSpec::default() }),
                ..node(key, vec![])
            }
        };
        let rules = compiled(vec![with("user", true, false), with("path", shadow_is_quota, true)]);
        let plan = Plan::new(&rules, &request("d", &[("user", "a"), ("path", "a")]), 0).expect("a plan");
        plan.charges.iter().map(|(_, charge)| charge.role).collect::<Vec<_>>()
    };
    assert_eq!(roles(false), [Role::Quota(0), Role::Shadow]);
    assert_eq!(roles(true), [Role::IdleQuota, Role::Shadow]);
}
