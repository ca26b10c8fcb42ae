//! Settles and the deny cache: a settle always reaches the store, and the layer answers like the store between settles.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use ::base::clock::Clock as _;
use engine::algorithm::Kernel;
use engine::{Charge, Charges, Charging, Cost, CounterSnapshot, DecidedBy, Grant, Outcomes, Role, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::deny_cache::{Fixture, RequestedCharge, Rules, comparable, one, rules, run};

#[derive(Clone, Debug)]
enum Event {
    Take {
        counter: usize,
        units: u64,
    },
    /// Settles the request that got this grant, by this real cost.
    Settle {
        grant: usize,
        actual: u64,
    },
}

/// A counter, the grant, and its units.
type Granted = (usize, Grant, u64);

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![
        4 => (0..3_usize, 1..8_u64).prop_map(|(counter, units)| Event::Take { counter, units }),
        1 => (0..64_usize, 0..12_u64).prop_map(|(grant, actual)| Event::Settle { grant, actual }),
    ];
    vec((0..9_u64, event), 1..80)
}

/// The layer does not record the denied hits of a postpaid window that is used up, so that a later return would find
/// less.
fn prepaid_rules() -> impl Strategy<Value = Rules> {
    rules().prop_map(|Rules(all)| {
        Rules(all.into_iter().map(|(kernel, _)| (kernel, Charging::Prepaid)).collect())
    })
}

fn settle(rules: &Rules, (counter, grant, estimated): Granted, actual: u64) -> Charges {
    let cost = match actual < estimated {
        true => Cost::undo(estimated - actual, grant),
        false if actual > estimated => Cost::take(actual - estimated),
        false => Cost::refund(0),
    };
    let single = rules.charges(&[RequestedCharge { counter, cost, role: Role::Settle }]);
    let (key, charge) = single.get(0);
    let mut charges = Charges::default();
    charges.push(Charge { charging: Charging::Postpaid, ..charge.clone() }, |text| text.push_str(key));
    charges
}

fn grant(counter: usize, charges: &Charges, outcomes: &Outcomes) -> Option<Granted> {
    let (charge, outcome) = (charges.charge(0), outcomes.by_charge[0]);
    let DecidedBy::Store(CounterSnapshot { reading, .. }) = outcome.decided_by else { return None };
    let units = charge.cost.taken();
    let is_granted = outcome.verdict == Verdict::Fits;
    is_granted.then(|| charge.kernel.grant(&reading, units).map(|grant| (counter, grant, units)))?
}

/// A generator that leaves a kernel out makes the properties blind for it.
#[test]
fn the_rules_have_every_kernel() {
    let mut runner = TestRunner::deterministic();
    let rules = std::iter::repeat_with(|| rules().new_tree(&mut runner).expect("rules").current());
    let kernels = rules.take(100).flat_map(|Rules(all)| all.into_iter().map(|(kernel, _)| kernel));
    let kinds: HashSet<_> = kernels.map(|kernel| std::mem::discriminant(&kernel)).collect();
    assert_eq!(kinds.len(), Kernel::KINDS);
}

#[test]
fn between_settles_the_layer_answers_like_the_store() {
    let hits = run((prepaid_rules(), events()), |(rules, events)| {
        let (fixture, plain) = (Fixture::new(400, 1_000), Fixture::new(1, 0));
        let mut grants: Vec<Granted> = Vec::new();
        for (pass_us, event) in events {
            let now_us = fixture.clock.now_us() + pass_us;
            fixture.clock.set(now_us);
            let (charges, counter) = match event {
                Event::Take { counter, units } => {
                    let requested = RequestedCharge { counter, cost: Cost::take(units), role: Role::Enforce };
                    (rules.charges(&[requested]), Some(counter))
                }
                Event::Settle { grant, actual } => match grants.get(grant % grants.len().max(1)) {
                    Some(&grant) => (settle(&rules, grant, actual), None),
                    None => continue,
                },
            };
            let expected = plain.below.memory.decide_at(&charges, now_us);
            let (answered, called) = fixture.decide_through_layer(&charges);
            let (left, right) = (answered.by_charge[0], expected.by_charge[0]);
            prop_assert_eq!(comparable(&left), comparable(&right), "{:?} at {}", charges, now_us);
            prop_assert!(called || counter.is_some(), "a settle is not answered by the layer");
            grants.extend(counter.and_then(|counter| grant(counter, &charges, &expected)));
        }
        Ok(fixture.cache.stats().hits)
    });
    assert!(hits > 1_000, "{hits} answers without a call are too few for this test");
}

#[test]
fn a_settle_is_no_denial_and_a_return_ends_one() {
    let fixture = Fixture::new(1_000_000, 10);
    let rules = Rules(vec![(one(Cost::PEEK).charge(0).kernel, Charging::Prepaid)]);
    let take = || fixture.decide_through_layer(&one(Cost::take(1)));
    let granted = grant(0, &one(Cost::take(1)), &take().0).expect("the first request is admitted");
    // More than the limit is recorded, and the outcome is over: it is not kept as a denial.
    fixture.decide_through_layer(&settle(&rules, granted, 2));
    assert_eq!(fixture.cache.stats().keys, 0);
    assert_eq!([take().1, take().1], [true, false], "the denial of a request is kept");
    let (outcomes, called) = fixture.decide_through_layer(&settle(&rules, granted, 0));
    assert!(called && outcomes.by_charge[0].verdict == Verdict::Fits);
    assert!(take().1, "the denial is forgotten");
    assert!(!fixture.below.was_known_denied.load(Ordering::Relaxed));
}
