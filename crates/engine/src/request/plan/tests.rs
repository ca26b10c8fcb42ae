//! Plans of requests.

use super::explanation::{Explanation, LimitUse};
use super::*;
use crate::request::receipt::{Receipt, UnreadableReceipt};
use crate::{
    Algorithm, Attached, Caller, Defaults, Descriptor, DomainSpec, Entry, Grant, LimitSpec, NodeSpec, Period,
    RuleSpec, Unit, ValueHashing,
};

fn spec(units: u64) -> LimitSpec {
    LimitSpec::new(Algorithm::FixedWindow, units, Period::one(Unit::Minute))
}

fn limit(units: u64, settle: bool) -> Limit {
    Limit::new(LimitSpec { settle, ..spec(units) }).expect("a valid limit")
}

fn node(key: &str, limits: Vec<Limit>) -> NodeSpec {
    let rule = Some(RuleSpec { limits, ..RuleSpec::default() });
    NodeSpec { key: key.to_owned(), rule, ..NodeSpec::default() }
}

fn compiled(descriptors: Vec<NodeSpec>) -> RuleSet {
    compiled_with(descriptors, Defaults::ENVOY_RATELIMIT.used_up_check)
}

fn compiled_with(descriptors: Vec<NodeSpec>, used_up_check: Verdict) -> RuleSet {
    let domain = DomainSpec { domain: "d".to_owned(), descriptors, ..DomainSpec::default() };
    let defaults = Defaults { used_up_check, ..Defaults::ENVOY_RATELIMIT };
    RuleSet::compile(&[domain], defaults, ValueHashing::NONE).expect("valid rules")
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
    request.descriptors[0].attached = Some(Box::new(Attached::Receipt(Ok(Receipt::new(7)))));
    assert_eq!(uses(&request), (true, vec![LimitUse::LeftOut, LimitUse::Charged(0)]));
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

#[test]
fn a_check_reserves_units_and_a_charge_books_the_difference() {
    let limit = |units| Limit::new(LimitSpec { reserve: Some(4), ..spec(units) }).expect("a valid limit");
    let row = |units, hits, is_refund, is_whole_cost| {
        let rules = compiled(vec![node("user", vec![limit(units)])]);
        let mut request = request("d", &[("user", "a")]);
        let descriptor = &mut request.descriptors[0];
        (descriptor.hits, descriptor.is_refund, descriptor.is_whole_cost) = (hits, is_refund, is_whole_cost);
        let plan = Plan::new(&rules, &request, 0).expect("a plan");
        let charged = plan.charged().next().expect("a charge");
        let Charge { cost, charging, role, .. } = *plan.charges.charge(0);
        (cost, charging, role, charged.reserve.map(|kind| kind.into_str()))
    };
    let usual = |cost| (cost, Charging::Prepaid, Role::Enforce, None);
    assert_eq!(row(9, None, false, false), usual(Cost::take(1)));
    assert_eq!(row(9, Some(7), true, false), usual(Cost::refund(7)));
    assert_eq!(row(9, Some(7), false, true), usual(Cost::take(7)));
    let check = |units| (Cost::take(units), Charging::Prepaid, Role::Enforce, Some("check"));
    assert_eq!(row(9, Some(0), false, false), check(4));
    assert_eq!(row(3, Some(0), false, false), check(3), "no more than ever fits");
    let charge = |cost| (cost, Charging::Postpaid, Role::Booked, Some("charge"));
    assert_eq!(row(9, Some(7), false, false), charge(Cost::take(3)));
    assert_eq!(row(9, Some(4), false, false), charge(Cost::refund(0)));
    assert_eq!(row(9, Some(1), false, false), charge(Cost::refund(3)));
    assert_eq!(row(0, Some(7), false, false), usual(Cost::take(7)), "a limit of 0 denies");
}

#[test]
fn only_a_check_of_a_postpaid_window_may_fit_when_the_limit_is_used_up() {
    let gcra = LimitSpec::new(Algorithm::Gcra, 5, Period::one(Unit::Minute));
    let cost = |charging, spec: &LimitSpec, hits, used_up_check| {
        let limit = Limit::new(LimitSpec { charging, ..spec.clone() }).expect("a valid limit");
        let rules = compiled_with(vec![node("user", vec![limit])], used_up_check);
        let mut request = request("d", &[("user", "a")]);
        request.descriptors[0].hits = Some(hits);
        Plan::new(&rules, &request, 0).expect("a plan").charges.charge(0).cost
    };
    let (postpaid, fits) = (Charging::Postpaid, Verdict::Fits);
    assert_eq!(cost(postpaid, &spec(5), 0, fits), Cost::DEBT_PEEK);
    assert_eq!(cost(postpaid, &spec(0), 0, fits), Cost::refund(0), "a limit of 0");
    assert_eq!(cost(postpaid, &gcra, 0, fits), Cost::PEEK);
    assert_eq!(cost(postpaid, &spec(5), 2, fits), Cost::take(2));
    assert_eq!(cost(Charging::Prepaid, &spec(5), 0, fits), Cost::PEEK);
    assert_eq!(cost(postpaid, &spec(5), 0, Verdict::Over), Cost::PEEK);
}

#[test]
fn a_settle_books_what_differs_from_the_estimate() {
    let rules = compiled(vec![node("user", vec![limit(9, true)])]);
    let grant = Grant { id: 28, limit: None };
    let mut receipt = Receipt::new(7);
    receipt.add("{d|user=a}#fw:60000000", 5, grant);
    let settle = |receipts: &[&Result<Receipt, UnreadableReceipt>], actual: &[u64]| {
        let mut request = request("d", &vec![("user", "a"); receipts.len()]);
        for (descriptor, (receipt, hits)) in request.descriptors.iter_mut().zip(receipts.iter().zip(actual)) {
            let attached = Attached::Receipt(Result::clone(receipt));
            (descriptor.attached, descriptor.hits) = (Some(Box::new(attached)), Some(*hits));
        }
        let plan = Plan::new(&rules, &request, 0).expect("a plan");
        plan.charges.values().map(|charge| charge.cost).collect::<Vec<_>>()
    };
    let mut other = receipt.clone();
    other.nonce = 8;
    let (receipt, other, none) = (Ok(receipt), Ok(other), Ok(Receipt::new(7)));
    let unreadable = Err(UnreadableReceipt);
    assert_eq!(settle(&[&receipt], &[2]), [Cost::undo(3, grant)]);
    assert_eq!(settle(&[&receipt], &[5]), [Cost::refund(0)]);
    assert_eq!(settle(&[&receipt], &[7]), [Cost::take(2)]);
    assert_eq!(settle(&[&none], &[7]), [Cost::take(7)], "the estimate recorded nothing");
    assert_eq!(settle(&[&receipt, &receipt], &[2, 7]), [Cost::take(2)], "the larger cost of one receipt");
    assert_eq!(settle(&[&receipt, &other], &[6, 7]), [Cost::take(1), Cost::take(2)]);
    assert_eq!(settle(&[&unreadable, &unreadable], &[6, 7]), [Cost::take(6), Cost::take(7)]);
}
