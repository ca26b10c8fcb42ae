//! The deny cache over a store that reserves, as a cluster does: which denials it repeats, and what it has the store
//! reserve.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ::store::deny_cache::DenyCacheOptions;
use engine::algorithm::{Blocked, FixedWindow, Kernel, SlidingWindow};
use engine::{Charges, Charging, Cost, Role, Store, StoreError, Verdict};
use futures_util::FutureExt;

use super::deny_cache::{Fixture, RequestedCharge, Rules, one};

/// A minute boundary.
const T0: u64 = 1_700_000_040_000_000;

/// In a cluster, where every limit is reported.
fn reserving(max_age_us: u64) -> Fixture {
    Fixture::with(DenyCacheOptions {
        max_age: Duration::from_micros(max_age_us),
        max_keys: 10,
        store_reserves: true,
    })
}

/// A denial may be due to units that another request holds for a moment.
#[test]
fn a_denial_that_may_be_a_reservation_is_used_as_long_as_it_has_lasted() {
    let fixture = reserving(1_000);
    let called_at = |us: u64| {
        fixture.clock.set(T0 + us);
        fixture.decide_through_layer(&one(Cost::take(1))).1
    };
    assert!(called_at(0), "admitted");
    let rows = [
        (100, true),    // the first denial
        (110, true),    // it has lasted for 10 us, so the second is used for 10 us
        (119, false),   //
        (120, true),    //
        (139, false),   // 20 us
        (150, true),    //
        (199, false),   // 50 us
        (5_000, true),  // after a pause longer than twice the maximum age a row begins anew
        (5_001, true),  //
        (6_500, true),  // shorter than that
        (7_499, false), // the maximum age
        (7_500, true),
    ];
    for (us, expected) in rows {
        assert_eq!(called_at(us), expected, "at {us}");
    }
    // An admitted hit ends the row.
    assert!(called_at(1_000_000));
    assert_eq!([1_000_500, 1_000_502, 1_000_503].map(called_at), [true, true, false]);
}

fn two(first: (Kernel, Charging), second: (Kernel, Charging), units: u64) -> Charges {
    let requested = |counter| RequestedCharge { counter, cost: Cost::take(units), role: Role::Enforce };
    Rules(vec![first, second]).charges(&[requested(0), requested(1)])
}

#[test]
fn the_other_limits_of_a_denied_request_are_only_asked() {
    let tight = |charging| (Kernel::SlidingWindow(SlidingWindow::new(2, 1_000_000)), charging);
    let wide = (Kernel::FixedWindow(FixedWindow::new(9, 1_000_000)), Charging::Prepaid);
    for charging in [Charging::Prepaid, Charging::Postpaid] {
        let fixture = reserving(1_000);
        let decide = |units| {
            let (outcomes, called) = fixture.decide_through_layer(&two(tight(charging), wide, units));
            let outcomes = [0, 1].map(|index| outcomes.by_charge[index]);
            (called, outcomes.map(|outcome| (outcome.verdict, outcome.report.remaining)))
        };
        assert_eq!(decide(2), (true, [(Verdict::Fits, 0), (Verdict::Fits, 7)]));
        for us in [10, 20] {
            fixture.clock.set(T0 + us);
            assert_eq!(decide(2), (true, [(Verdict::Over, 0), (Verdict::Fits, 7)]), "not known yet");
        }
        let is_known_denied = || fixture.below.was_known_denied.load(Ordering::Relaxed);
        assert!(!is_known_denied());
        assert_eq!(decide(2), (true, [(Verdict::Over, 0), (Verdict::Fits, 7)]), "{charging:?}");
        assert!(is_known_denied(), "the store need not reserve anything");
        assert_eq!(decide(8), (true, [(Verdict::Over, 0), (Verdict::Over, 7)]), "by the cost of the request");
        assert_eq!(fixture.cache.stats().hits, 0);
    }
}

#[test]
fn a_cached_denial_stands_if_the_store_does_not_answer() {
    let sliding = Kernel::SlidingWindow(SlidingWindow::new(1, 1_000_000));
    let wide = (Kernel::FixedWindow(FixedWindow::new(9, 1_000_000)), Charging::Prepaid);
    // The store has to record a postpaid charge. It is denied all the same if it cannot.
    for charging in [Charging::Prepaid, Charging::Postpaid] {
        let fixture = reserving(1_000);
        let both = two((sliding, charging), wide, 1);
        for us in [0, 10, 20] {
            fixture.clock.set(T0 + us);
            fixture.decide_through_layer(&both);
        }
        fixture.below.is_down.store(true, Ordering::Relaxed);
        let error =
            fixture.layered.decide(&both).now_or_never().expect("an answer").expect_err("no whole answer");
        let is_over = [0, 1].map(|index| error.is_over(index, false));
        assert_eq!(is_over, [true, false], "{charging:?}");
        assert_eq!(error.outcome(1), Err(&StoreError::Timeout));
    }
}

/// It is known without the cache, and each new value of an attacker would displace another denial.
#[test]
fn the_denial_of_a_limit_of_0_is_not_kept() {
    let blocked = (Kernel::Blocked(Blocked::new(1_000_000)), Charging::Prepaid);
    let wide = (Kernel::FixedWindow(FixedWindow::new(9, 1_000_000)), Charging::Prepaid);
    let fixture = Fixture::new(1_000, 10);
    for _ in 0..5 {
        let (outcomes, _) = fixture.decide_through_layer(&two(blocked, wide, 1));
        assert_eq!(outcomes.by_charge[0].verdict, Verdict::Over);
    }
    let calls = fixture.below.calls.load(Ordering::Relaxed);
    assert_eq!((fixture.cache.stats().keys, calls), (0, 5));
}
