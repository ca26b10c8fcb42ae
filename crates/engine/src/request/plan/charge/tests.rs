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
    let settle = Charge { charging: Charging::Postpaid, ..charge(five(), Cost::refund(0), Role::Settle) };
    let take = |units| charge(five(), Cost::take(units), Role::Enforce);
    let booked = Charge { charging: Charging::Postpaid, ..charge(five(), Cost::take(2), Role::Booked) };
    let six = charge(Kernel::FixedWindow(FixedWindow::new(6, 1_000_000)), Cost::take(1), Role::Enforce);
    // Charges on one counter, and the keys, roles and units that they become.
    let table: [(&[&Charge], &[Merged<'_>]); 6] = [
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
    ];
    for (pushed, expected) in table {
        let mut charges = Charges::default();
        for charge in pushed {
            charges.push(Charge::clone(charge), |text| text.push('k'));
        }
        let all = charges.iter().map(|(key, charge)| (key, charge.role, charge.cost.units()));
        assert_eq!(all.collect::<Vec<_>>(), expected, "{pushed:?}");
        assert!(charges.are_merged(), "{pushed:?}");
    }
}

#[test]
fn a_settle_does_not_leave_the_counter_as_it_is_after_the_request() {
    let mut charges = Charges::default();
    let take = charge(five(), Cost::take(1), Role::Enforce);
    let settle = Charge { charging: Charging::Postpaid, ..charge(five(), Cost::refund(0), Role::Settle) };
    for charge in [&settle, &take, &settle] {
        charges.push(charge.clone(), |text| text.push('k'));
    }
    charges.push(settle.clone(), |text| text.push('l'));
    charges.push(settle, |text| text.push('l'));
    let last: Vec<_> = (0..charges.len()).map(|index| charges.last_on_counter(index)).collect();
    assert_eq!(last, [1, 1, 1, 4, 4]);
}

#[test]
fn a_store_gets_each_settle_alone_and_then_the_other_charges() {
    let mut charges = Charges::default();
    let take = charge(five(), Cost::take(1), Role::Enforce);
    let settle = Charge { charging: Charging::Postpaid, ..charge(five(), Cost::refund(0), Role::Settle) };
    for (charge, key) in [(&take, "k"), (&settle, "k"), (&take, "l"), (&settle, "l")] {
        charges.push(charge.clone(), |text| text.push_str(key));
    }
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
