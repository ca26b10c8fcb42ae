//! Which charges are merged, and which deny for certain.

use super::*;
use crate::limit::algorithm::{
    Blocked, FixedWindow, Gcra, IntervalBucket, Pacing, SlidingLog, SlidingWindow,
};

const BLOCKED: Kernel = Kernel::Blocked(Blocked::new(1_000_000));

fn five() -> Kernel {
    Kernel::FixedWindow(FixedWindow::new(5, 1_000_000))
}

fn charge(kernel: Kernel, cost: Cost, role: Role) -> Charge {
    Charge { kernel, cost, charging: Charging::Prepaid, role, on_store_failure: FailurePolicy::Error }
}

fn postpaid(cost: Cost, role: Role) -> Charge {
    Charge { charging: Charging::Postpaid, ..charge(five(), cost, role) }
}

fn pushed(all: &[(&str, &Charge)]) -> Charges {
    let mut charges = Charges::default();
    for &(key, charge) in all {
        charges.push(charge.clone(), |text| text.push_str(key));
    }
    charges
}

#[test]
fn a_cost_above_the_largest_never_fits() {
    let kernels = [
        five(),
        Kernel::SlidingWindow(SlidingWindow::new(5, 1_000_000)),
        Kernel::SlidingLog(SlidingLog::new(5, 1_000_000)),
        Kernel::Gcra(Gcra::new(7, 1_000_000, 5, Pacing::Meter)),
        Kernel::IntervalBucket(IntervalBucket::new(5, 2, 1_000_000)),
    ];
    let never_fits = |kernel, cost| charge(kernel, cost, Role::Enforce).never_fits();
    for kernel in kernels {
        let rows = [Cost::take(5), Cost::take(6), Cost::take(u64::MAX), Cost::PEEK, Cost::refund(6)];
        let expected = [false, true, true, false, false];
        assert_eq!(rows.map(|cost| never_fits(kernel, cost)), expected, "{kernel}");
    }
    let rows = [Cost::take(1), Cost::PEEK, Cost::refund(0), Cost::refund(1)];
    assert_eq!(rows.map(|cost| never_fits(BLOCKED, cost)), [true, true, false, false]);
}

#[test]
fn charges_that_never_fit_deny_as_their_roles_say() {
    let (one, six) = (Cost::take(1), Cost::take(6));
    let is_denied = |all: &[(Kernel, Cost, Role)]| {
        let mut charges = Charges::default();
        for (index, &(kernel, cost, role)) in all.iter().enumerate() {
            charges.push(charge(kernel, cost, role), |text| text.push_str(&index.to_string()));
        }
        charges.is_certainly_denied()
    };
    let (first, second) = (Role::Quota(0), Role::Quota(1));
    assert!(!is_denied(&[(five(), one, Role::Enforce)]));
    assert!(is_denied(&[(five(), one, Role::Enforce), (BLOCKED, one, Role::Enforce)]));
    assert!(is_denied(&[(five(), six, Role::Enforce), (five(), one, Role::Enforce)]));
    assert!(!is_denied(&[(five(), one, Role::Enforce), (BLOCKED, six, Role::IdleQuota)]));
    assert!(!is_denied(&[(BLOCKED, one, first), (five(), one, second)]), "a group has room");
    assert!(is_denied(&[(BLOCKED, one, first), (five(), six, second)]));
    assert!(!is_denied(&[(BLOCKED, Cost::refund(1), Role::Enforce)]), "a refund always fits");
}

#[test]
fn a_request_known_to_be_denied_is_denied_for_certain() {
    let mut charges = Charges::default();
    charges.push(charge(five(), Cost::take(1), Role::Enforce), |text| text.push('1'));
    assert!(!charges.is_certainly_denied());
    charges.set_denied();
    assert!(charges.is_certainly_denied());
}

/// The key, the role and the units of a charge.
type Merged<'k> = (&'k str, Role, i64);

#[test]
fn prepaid_costs_on_one_counter_are_added_whatever_stands_between_them() {
    let settle = postpaid(Cost::refund(0), Role::Settle);
    let take = |units| charge(five(), Cost::take(units), Role::Enforce);
    let shadow = charge(five(), Cost::take(1), Role::Shadow);
    let booked = postpaid(Cost::take(2), Role::Booked);
    let quota = |group| charge(five(), Cost::take(1), Role::Quota(group));
    let six = charge(Kernel::FixedWindow(FixedWindow::new(6, 1_000_000)), Cost::take(1), Role::Enforce);
    // Charges on one counter, and the keys, roles and units that they become.
    let table: [(&[&Charge], &[Merged<'_>]); 10] = [
        (&[&take(4), &settle, &take(3)], &[("k", Role::Enforce, 7), ("k", Role::Settle, 0)]),
        (
            &[&settle, &take(4), &settle],
            &[("k", Role::Settle, 0), ("k", Role::Enforce, 4), ("k", Role::Settle, 0)],
        ),
        (
            &[&take(1), &settle, &take(1), &settle, &take(1)],
            &[("k", Role::Enforce, 3), ("k", Role::Settle, 0), ("k", Role::Settle, 0)],
        ),
        (
            &[&booked, &booked, &settle, &take(1)],
            &[("k", Role::Booked, 2), ("k", Role::Enforce, 3), ("k", Role::Settle, 0)],
        ),
        // A settle uses the rule's counter, whatever the limits of the request's other charges.
        (
            &[&six, &settle, &take(1), &settle, &six],
            &[
                ("k", Role::Enforce, 2),
                ("k", Role::Settle, 0),
                ("k/5", Role::Enforce, 1),
                ("k", Role::Settle, 0),
            ],
        ),
        (
            &[&settle, &six, &take(1), &take(1)],
            &[("k", Role::Settle, 0), ("k", Role::Enforce, 1), ("k/5", Role::Enforce, 2)],
        ),
        (&[&quota(0), &quota(1)], &[("k", Role::Quota(0), 2)]),
        // If one of them can deny, their sum can.
        (&[&shadow, &take(1)], &[("k", Role::Enforce, 2)]),
        (&[&shadow, &quota(1)], &[("k", Role::Quota(1), 2)]),
        (&[&take(1), &shadow], &[("k", Role::Enforce, 2)]),
    ];
    for (all, expected) in table {
        let charges = pushed(&all.iter().map(|&charge| ("k", charge)).collect::<Vec<_>>());
        let merged = charges.iter().map(|(key, charge)| (key, charge.role, charge.cost.units()));
        assert_eq!(merged.collect::<Vec<_>>(), expected, "{all:?}");
        assert!(charges.are_merged(), "{all:?}");
    }
}

/// A peek of a descriptor in shadow mode, and one that can deny.
#[test]
fn postpaid_peeks_of_one_counter_stay_postpaid_when_they_are_merged() {
    let peek = |role| postpaid(Cost::PEEK, role);
    let charges = pushed(&[("k", &peek(Role::Shadow)), ("k", &peek(Role::Enforce))]);
    assert_eq!(charges.len(), 1);
    let Charge { charging, role, .. } = *charges.charge(0);
    assert_eq!((charging, role), (Charging::Postpaid, Role::Enforce));
}

#[test]
fn a_settle_does_not_leave_the_counter_as_it_is_after_the_request() {
    let take = charge(five(), Cost::take(1), Role::Enforce);
    let settle = postpaid(Cost::refund(0), Role::Settle);
    let charges = pushed(&[("k", &settle), ("k", &take), ("k", &settle), ("l", &settle), ("l", &settle)]);
    let last = |charges: &Charges| [0, 1, 2, 3, 4].map(|index| charges.last_on_counter(index));
    assert_eq!(last(&charges), [1, 1, 1, 4, 4]);
    let mut apart = Charges::default();
    charges.iter().for_each(|(key, charge)| apart.push_apart(charge.clone(), key));
    assert_eq!(last(&apart), [1, 1, 1, 4, 4]);
}

#[test]
fn a_store_gets_each_settle_alone_and_then_the_other_charges() {
    let take = charge(five(), Cost::take(1), Role::Enforce);
    let settle = postpaid(Cost::refund(0), Role::Settle);
    let charges = pushed(&[("k", &take), ("k", &settle), ("l", &take), ("l", &settle)]);
    let parts = charges.parts().into_iter().map(|ChargesPart { indices, charges }| {
        let all = charges.iter().map(|(key, charge)| (key.to_owned(), charge.role)).collect::<Vec<_>>();
        (indices, charges.has_settles(), all)
    });
    let part = |indices: &[usize], has_settles, all: &[(&str, Role)]| {
        let all = all.iter().map(|&(key, role)| (key.to_owned(), role)).collect();
        (indices.to_vec(), has_settles, all)
    };
    let expected = [
        part(&[1], true, &[("k", Role::Settle)]),
        part(&[3], true, &[("l", Role::Settle)]),
        part(&[0, 2], false, &[("k", Role::Enforce), ("l", Role::Enforce)]),
    ];
    assert_eq!(parts.collect::<Vec<_>>(), expected);
}

#[test]
fn a_charge_is_recorded_as_its_charging_says() {
    let prepaid = charge(five(), Cost::take(1), Role::Enforce);
    let postpaid = Charge { charging: Charging::Postpaid, ..prepaid.clone() };
    let peek = charge(five(), Cost::PEEK, Role::Enforce);
    let table =
        [(Verdict::Fits, false), (Verdict::Fits, true), (Verdict::Over, false), (Verdict::Over, true)];
    let recorded = |charge: &Charge| table.map(|(verdict, denied)| charge.is_recorded(verdict, denied));
    assert_eq!((recorded(&prepaid), prepaid.is_independent()), ([true, false, false, false], false));
    assert_eq!((recorded(&postpaid), postpaid.is_independent()), ([true; 4], true));
    assert_eq!((recorded(&peek), peek.is_independent()), ([false; 4], true));
}

/// The verdict on a charge must cover all costs of the request against its counter.
#[test]
fn a_prepaid_charge_is_the_last_of_its_counter_and_all_have_one_limit() {
    let (prepaid, late) =
        (charge(five(), Cost::take(1), Role::Enforce), postpaid(Cost::take(1), Role::Enforce));
    let six = Charge { kernel: Kernel::FixedWindow(FixedWindow::new(6, 1_000_000)), ..late.clone() };
    let (settle, blocked) =
        (postpaid(Cost::take(1), Role::Settle), charge(BLOCKED, Cost::take(1), Role::Enforce));
    for (earlier, later, are_merged) in [
        (&prepaid, &prepaid, false),
        (&prepaid, &late, false),
        (&late, &prepaid, true),
        (&late, &late, true),
        (&late, &six, false),
        (&prepaid, &settle, true),
        (&blocked, &blocked, true),
    ] {
        let mut charges = Charges::default();
        for charge in [earlier, later] {
            charges.push_apart(charge.clone(), "k");
        }
        assert_eq!(charges.are_merged(), are_merged, "{charges:?}");
    }
}

#[test]
fn a_charge_costs_what_earlier_ones_took_from_its_counter_as_well() {
    let take = |units| postpaid(Cost::take(units), Role::Enforce);
    let (settle, peek) = (postpaid(Cost::take(9), Role::Settle), postpaid(Cost::PEEK, Role::Enforce));
    let charges = pushed(&[
        ("k", &settle),
        ("l", &peek),
        ("k", &take(3)),
        ("l", &take(7)),
        ("k", &take(2)),
        ("k", &peek),
    ]);
    let costs = [0, 1, 2, 3, 4, 5].map(|index| charges.cost_so_far(index));
    assert_eq!(
        costs,
        [Cost::take(9), Cost::PEEK, Cost::take(3), Cost::take(7), Cost::take(5), Cost::take(6)]
    );
}

#[test]
fn only_hits_of_a_request_without_repeated_keys_use_borrowed_units() {
    let take = postpaid(Cost::take(1), Role::Enforce);
    let (booked, settle) = (postpaid(Cost::take(1), Role::Booked), postpaid(Cost::take(1), Role::Settle));
    let refund = postpaid(Cost::refund(1), Role::Enforce);
    // The last charge may use borrowed units. Does the request, and the charge?
    for (all, has_leased, is_leased) in [
        (&[("k", &take)][..], true, true),
        (&[("k", &booked)], true, false),
        (&[("k", &refund)], true, false),
        (&[("k", &take), ("k", &take)], false, true),
        (&[("k", &settle), ("l", &take)], false, true),
    ] {
        let (mut charges, last) = (pushed(all), all.len() - 1);
        assert!(!charges.has_leased() && charges.leased(last).is_none(), "{charges:?}");
        charges.set_leased(last, LimitId(0));
        assert_eq!(
            (charges.has_leased(), charges.leased(last).is_some()),
            (has_leased, is_leased),
            "{charges:?}"
        );
        assert!(!charges.filter_map(|_, charge| Some(charge.clone())).has_leased(), "{charges:?}");
        charges.set_denied();
        assert!(!charges.has_leased(), "{charges:?}");
    }
}

#[test]
fn cleared_charges_keep_nothing_but_their_memory() {
    let (take, blocked) =
        (charge(five(), Cost::take(1), Role::Enforce), charge(BLOCKED, Cost::take(1), Role::Enforce));
    assert!(pushed(&[("k", &blocked)]).need_no_store());
    let mut charges = pushed(&[("k", &take), ("l", &take), ("m", &blocked)]);
    charges.set_caller(Caller(7));
    charges.set_denied();
    let seen = |charges: &Charges| {
        (charges.caller(), charges.is_known_denied(), charges.need_no_store(), charges.is_empty())
    };
    assert_eq!(seen(&charges), (Caller(7), true, false, false));
    let capacity = |charges: &Charges| (charges.text.capacity(), charges.charges.capacity());
    let before = capacity(&charges);
    charges.clear();
    assert_eq!((seen(&charges), capacity(&charges)), ((Caller(0), false, true, true), before));
    assert_eq!(charges, Charges::default());
}
