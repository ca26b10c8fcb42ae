//! Plans of requests.

use super::*;
use crate::{
    Algorithm, Caller, Defaults, Descriptor, DomainSpec, Entry, LimitSpec, NodeSpec, Period, RuleSpec, Unit,
    ValueHashing,
};

#[test]
fn a_plan_that_was_used_before_is_that_of_the_request() {
    let limit = |units| {
        let spec = LimitSpec::new(Algorithm::FixedWindow, units, Period::one(Unit::Minute));
        Limit::new(spec).expect("a valid limit")
    };
    let node = |key: &str, limits| {
        let rule = Some(RuleSpec { limits, ..RuleSpec::default() });
        NodeSpec { key: key.to_owned(), rule, ..NodeSpec::default() }
    };
    let descriptors = vec![node("user", vec![limit(5), limit(7)]), node("path", vec![limit(9)])];
    let domain = DomainSpec { domain: "d".to_owned(), descriptors, ..DomainSpec::default() };
    let rules =
        RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules");
    let request = |domain: &str, keys: &[&str]| {
        let entry = |key: &&str| Entry { key: (*key).to_owned(), value: "a".to_owned() };
        let descriptor = |key| Descriptor { entries: vec![entry(key)], ..Descriptor::default() };
        let descriptors = keys.iter().map(descriptor).collect();
        Request { domain: domain.to_owned(), hits_addend: 1, descriptors, caller: Caller::default() }
    };
    let mut used = Plan::default();
    for (domain, keys) in [("d", &["user", "user"][..]), ("d", &["path"]), ("e", &["user"]), ("d", &[])] {
        let request = request(domain, keys);
        used.refill(&rules, &request, 0).expect("a plan");
        assert_eq!(Ok(&used), Plan::new(&rules, &request, 0).as_ref(), "{request:?}");
    }
}
