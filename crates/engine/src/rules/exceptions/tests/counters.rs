//! Which counter a changed limit has.

use super::*;
use crate::{Calendar, Refill};

/// The keys of the counters that one descriptor is charged to.
fn keys(rules: &RuleSet, pairs: Pairs<'_>) -> Vec<String> {
    let plan = Plan::new(rules, &request(vec![descriptor(pairs)]), 0).expect("a plan");
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
        // exceptions, limit, burst
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
            let plan = Plan::new(&rules, &request(vec![descriptor(&[("k", "x")])]), 0).expect("a plan");
            let spec = &plan.limits().next().expect("a limit").spec;
            assert_eq!((spec.requests_per_unit, spec.burst), (*number, Some(*burst)), "{effects:?}");
            let is_same_counter = keys(&rules, &[("k", "x")]) == keys(&plain, &[("k", "x")]);
            assert_eq!(is_same_counter, refill == Refill::Continuous || effects.is_empty(), "{effects:?}");
        }
    }
}

/// The keys of a rule with these limits, with an exception for one of them.
fn keys_of(limits: &[LimitSpec], effects: &[(&str, Effect)]) -> Vec<String> {
    let domain = DomainSpec {
        domain: "d".to_owned(),
        descriptors: vec![node("k", limits.to_vec(), vec![])],
        ..DomainSpec::default()
    };
    let rules =
        RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules");
    let row = |(name, effect): &(&str, Effect)| on_limits("*", name, row("k", "x", effect.clone()));
    keys(&with(&rules, effects.iter().map(row)), &[("k", "x")])
}

#[test]
fn a_tier_or_row_of_one_limit_never_has_the_counter_of_another_limit() {
    let of = |algorithm, refill, number, name: &str| LimitSpec {
        name: Some(name.to_owned()),
        refill,
        tiers: [("pro".to_owned(), Tier::Limited { requests_per_unit: 20, burst: None })].into(),
        ..LimitSpec::new(algorithm, number, Period::one(Unit::Hour))
    };
    let interval = |number, name| of(Algorithm::TokenBucket, Refill::Interval, number, name);
    let window = |number, name| of(Algorithm::FixedWindow, Refill::Continuous, number, name);
    let table = [
        vec![interval(10, "small"), interval(20, "large")],
        vec![interval(20, "large"), interval(10, "small")],
        vec![window(0, "small"), window(20, "large")],
        vec![window(20, "large"), window(0, "small")],
        vec![window(10, "small"), window(20, "large")],
    ];
    for limits in table {
        let without = keys_of(&limits, &[]);
        for effect in [tier("pro"), limit(20), times("2")] {
            let of_small = keys_of(&limits, &[("small", effect.clone())]);
            let large =
                limits.iter().position(|limit| limit.name.as_deref() == Some("large")).expect("large");
            let small = 1 - large;
            assert_eq!(of_small[large], without[large], "{effect:?} on {without:?}");
            assert_ne!(of_small[small], of_small[large], "{effect:?} on {without:?}");
            // Equal values from a tier or an exception share a counter; the limit's own value is that of the rule.
            let both = [("small", tier("pro")), ("large", tier("pro"))];
            let twice = keys_of(&limits, &both);
            assert_ne!(twice[0], twice[1], "{without:?}");
            let own = limits[small].requests_per_unit;
            assert_eq!(keys_of(&limits, &[("small", limit(own))]), without);
        }
    }
    // The keys of a rule with one limit of a kind.
    let alone = keys_of(&[interval(10, "small"), window(10, "large")], &[("*", limit(7))]);
    assert_eq!(alone, ["{d|k=x}#ib:7/3600000000/7", "{d|k=x}#fw:3600000000"]);
    let two = keys_of(&[interval(10, "small"), interval(20, "large")], &[("small", limit(20))]);
    assert_eq!(two, ["{d|k=x}#ib:20/3600000000/20/limit1", "{d|k=x}#ib:20/3600000000/20"]);
}

#[test]
fn a_limit_of_0_never_has_the_counter_of_a_calendar() {
    let calendar = Arc::new(Calendar::new("UTC", "month", vec![0, 1, 2]).expect("a calendar"));
    let month = LimitSpec { calendar: Some(calendar), tiers: Default::default(), ..plain(5, None) };
    assert_eq!(keys_of(std::slice::from_ref(&month), &[]), ["{d|k=x}#fw:c:UTC/month"]);
    let blocked = "{d|k=x}#no:60000000";
    assert_eq!(keys_of(std::slice::from_ref(&month), &[("*", limit(0))]), [blocked]);
    assert_eq!(keys_of(&[LimitSpec { requests_per_unit: 0, ..month }], &[]), [blocked]);
}

#[test]
fn a_limit_has_any_number_of_tiers_in_the_time_of_their_number() {
    // With a copy of all tiers for each tier, this would never end.
    let tier =
        |number: u64| (format!("tier{number}"), Tier::Limited { requests_per_unit: number, burst: None });
    let spec = LimitSpec { tiers: (1..=100_000).map(tier).collect(), ..plain(5, None) };
    let limit = Limit::new(spec).expect("a valid limit");
    assert_eq!(limit.tier("tier70000").map(|tier| tier.limit.spec.requests_per_unit), Some(70_000));
}
