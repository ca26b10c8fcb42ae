//! Which counter a changed limit has.

use super::*;
use crate::Refill;

/// The keys of the counters that one descriptor is charged to.
fn keys(rules: &RuleSet, pairs: Pairs<'_>) -> Vec<String> {
    let plan = rules.plan(&request(vec![descriptor(pairs)]), 0).expect("a plan");
    plan.charges.keys().map(str::to_owned).collect()
}

#[test]
fn a_changed_limit_keeps_its_counter() {
    let acme: Pairs<'_> = &[("tenant", "acme")];
    let rules = rules();
    let before = keys(&rules, acme);
    for effects in [vec![tier("pro")], vec![limit(7)], vec![tier("pro"), times("2")], vec![shadow(true)]] {
        let rules = with(&rules, effects.iter().map(|effect| row("tenant", "acme", effect.clone())));
        assert_eq!(keys(&rules, acme), before, "{effects:?}");
    }
    let tiers = ["pro", "trial", "gold"].map(|tier| keys(&rules, &[("tenant", "acme"), ("tier", tier)]));
    assert_eq!(tiers, [before.clone(), before.clone(), before], "the tier is no part of the key");
}

#[test]
fn a_burst_is_scaled_unless_the_tier_names_it_and_an_interval_bucket_starts_afresh() {
    let bucket = |refill| {
        let limited = |requests_per_unit, burst| Tier::Limited { requests_per_unit, burst };
        let tiers = [("half", limited(5, None)), ("wide", limited(20, Some(99)))];
        let spec = LimitSpec {
            burst: Some(15),
            refill,
            tiers: tiers.map(|(name, tier)| (name.to_owned(), tier)).into(),
            ..LimitSpec::new(Algorithm::TokenBucket, 10, Period::one(Unit::Minute))
        };
        let domain = DomainSpec {
            domain: "d".to_owned(),
            descriptors: vec![node("k", vec![spec], vec![])],
            ..DomainSpec::default()
        };
        RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules")
    };
    let table = [
        // rows, number, burst
        (vec![], 10, 15),
        (vec![tier("half")], 5, 8), // 7.5, rounded up
        (vec![tier("wide")], 20, 99),
        (vec![limit(1)], 1, 2),
        (vec![tier("wide"), times("0.1")], 2, 10),
        (vec![times("0.001")], 1, 2),
    ];
    for refill in [Refill::Continuous, Refill::Interval] {
        let plain = bucket(refill);
        for (effects, number, burst) in &table {
            let rules = with(&plain, effects.iter().map(|effect| row("k", "x", effect.clone())));
            let plan = rules.plan(&request(vec![descriptor(&[("k", "x")])]), 0).expect("a plan");
            let spec = &plan.limits().next().expect("a limit").spec;
            assert_eq!((spec.requests_per_unit, spec.burst), (*number, Some(*burst)), "{effects:?}");
            let is_same_counter = keys(&rules, &[("k", "x")]) == keys(&plain, &[("k", "x")]);
            assert_eq!(is_same_counter, refill == Refill::Continuous || effects.is_empty(), "{effects:?}");
        }
    }
}
