//! Random sequences of requests.

use std::collections::HashSet;

use engine::algorithm::Kernel;
use engine::{Charging, Pacing, Role};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::sequence::{
    Amount, KINDS, LONGEST_US, NumberChange, RandomCharge, RandomRequest, Sequence, TimeStep, kernel_of,
};

/// Small limits and periods, so that limits and periods end often.
pub(crate) fn small() -> impl Strategy<Value = Kernel> {
    kernel(0..12_u64, 1..=40_u64)
}

/// Limits and periods as in typical rules.
pub(crate) fn everyday() -> impl Strategy<Value = Kernel> {
    let unit_s = prop_oneof![Just(1_u64), Just(60), Just(3_600), Just(86_400)];
    kernel(0..100_000_u64, unit_s.prop_map(|seconds| seconds * 1_000_000))
}

/// The largest allowed numbers, and numbers near them.
pub(crate) fn largest() -> impl Strategy<Value = Kernel> {
    let limit = prop_oneof![
        Just(u64::from(u32::MAX)),
        1..=u64::from(u32::MAX),
        1..1_000_u64,
        Just(1 << 52),
        1_u64..1 << 46,
        (1_u64 << 46) - 1_000..=1 << 46
    ];
    kernel(limit, prop_oneof![Just(LONGEST_US), 1..=LONGEST_US, LONGEST_US - 1_000..=LONGEST_US])
}

/// Kernels with these limits and periods, within the bounds of the engine.
pub(crate) fn kernel(
    limit: impl Strategy<Value = u64> + Clone + 'static,
    length_us: impl Strategy<Value = u64> + Clone + 'static,
) -> impl Strategy<Value = Kernel> {
    let numbers = (limit.clone(), limit, length_us);
    (0..KINDS, numbers, any::<bool>()).prop_map(|(kind, numbers, queue)| {
        kernel_of(kind, numbers, if queue { Pacing::Queue } else { Pacing::Meter })
    })
}

fn amount() -> impl Strategy<Value = Amount> {
    prop_oneof![
        8 => Just(Amount::Peek),
        2 => Just(Amount::DebtPeek),
        5 => (0.0..1.2).prop_map(Amount::Refund),
        5 => (1..4_u64).prop_map(|units| Amount::Refund(units as f64 * 1e-9)),
        2 => Just(Amount::Saturated),
        2 => Just(Amount::Nothing),
        38 => (1..4_u64).prop_map(Amount::Few),
        40 => (0.0..2.1).prop_map(Amount::Take),
    ]
}

/// The roles that charges beside others can have.
fn role_beside_others() -> impl Strategy<Value = Role> + Clone {
    prop_oneof![
        8 => Just(Role::Enforce),
        1 => Just(Role::IdleQuota),
        1 => Just(Role::Shadow),
        1 => Just(Role::Announced),
        1 => Just(Role::Booked),
        4 => (0..3_u16).prop_map(Role::Quota),
    ]
}

/// The role of a charge that may be alone in its request.
fn role() -> impl Strategy<Value = Role> {
    prop_oneof![7 => role_beside_others(), 1 => Just(Role::Settle)]
}

fn charge_of(counters: usize, role: impl Strategy<Value = Role>) -> impl Strategy<Value = RandomCharge> {
    let charging = prop_oneof![3 => Just(Charging::Prepaid), 1 => Just(Charging::Postpaid)];
    (0..counters, amount(), charging, role).prop_map(|(counter, amount, charging, role)| RandomCharge {
        counter,
        amount,
        charging,
        role,
    })
}

/// A charge of a request that may have others.
pub(crate) fn random_charge(counters: usize) -> impl Strategy<Value = RandomCharge> {
    charge_of(counters, role_beside_others())
}

/// The only charge of a request. An undo is one.
pub(crate) fn only_charge(counters: usize) -> impl Strategy<Value = RandomCharge> {
    let undo = (0..counters, 0..4_usize, 0.0..1.2).prop_map(|(counter, back, share)| RandomCharge {
        counter,
        amount: Amount::Undo { back, share },
        charging: Charging::Postpaid,
        role: Role::Settle,
    });
    prop_oneof![6 => charge_of(counters, role()), 1 => undo]
}

/// A generator that leaves a kernel or a role out makes the properties blind for it.
#[test]
fn the_generators_make_every_kernel_and_every_role() {
    fn kinds<T>(values: impl Strategy<Value = T>) -> usize {
        let mut runner = TestRunner::deterministic();
        let value = || values.new_tree(&mut runner).expect("a value").current();
        let kinds = std::iter::repeat_with(value).take(1_000);
        kinds.map(|value| std::mem::discriminant(&value)).collect::<HashSet<_>>().len()
    }
    for kernels in [small().boxed(), everyday().boxed(), largest().boxed()] {
        assert_eq!(kinds(kernels), Kernel::KINDS);
    }
    assert_eq!(kinds(only_charge(1).prop_map(|charge| charge.role)), Role::KINDS);
    // A settle comes alone.
    assert_eq!(kinds(random_charge(1).prop_map(|charge| charge.role)), Role::KINDS - 1);
}

pub(super) fn time_step() -> impl Strategy<Value = TimeStep> {
    prop_oneof![
        25 => (0..60_u64).prop_map(TimeStep::Us),
        25 => (0.0..1.3).prop_map(TimeStep::Periods),
        5 => (1.3..4.0).prop_map(TimeStep::Periods),
        35 => (-1..=1_i64).prop_map(TimeStep::Due),
        8 => (1..80_u64).prop_map(TimeStep::Back),
    ]
}

fn request() -> impl Strategy<Value = RandomRequest> {
    let charges = prop_oneof![3 => vec(only_charge(4), 1), 2 => vec(random_charge(4), 2..5)];
    (charges, prop_oneof![9 => Just(false), 1 => Just(true)])
}

/// Many requests, of which most are equal: four requests, each several times, the first one most often.
pub(super) fn crowd() -> impl Strategy<Value = Vec<RandomRequest>> {
    let single = || (vec(only_charge(2), 1), prop_oneof![9 => Just(false), 1 => Just(true)]);
    let different = (single(), single(), single(), request());
    let order = vec(prop_oneof![12 => Just(0), 4 => Just(1), 2 => Just(2), 1 => Just(3)], 2..60);
    (different, order).prop_map(|((first, second, third, fourth), order)| {
        let different = [first, second, third, fourth];
        order.into_iter().map(|index: usize| different[index].clone()).collect()
    })
}

pub(super) fn sequence(kernels: impl Strategy<Value = Kernel>) -> impl Strategy<Value = Sequence> {
    let batch = prop_oneof![6 => vec(request(), 1..3), 2 => vec(request(), 3..20), 2 => crowd()];
    of_batches(kernels, batch, 40)
}

/// Fewer batches than `most`.
pub(super) fn of_batches(
    kernels: impl Strategy<Value = Kernel>,
    batch: impl Strategy<Value = Vec<RandomRequest>>,
    most: usize,
) -> impl Strategy<Value = Sequence> {
    (vec(kernels, 4), changes(most), vec((time_step(), batch), 1..most))
        .prop_map(|(kernels, changes, batches)| Sequence { kernels, changes, batches })
}

/// Changes of limits, in the middle of a sequence with fewer batches than `most`. Half of the sequences have none.
pub(super) fn changes(most: usize) -> impl Strategy<Value = Vec<NumberChange>> {
    let factor = prop_oneof![Just(2.0), Just(0.1), Just(10.0), Just(1.0), Just(0.0), 0.01..4.0];
    let change = (1..most, 0..4_usize, factor).prop_map(|(batch, counter, factor)| NumberChange {
        batch,
        counter,
        factor,
    });
    prop_oneof![Just(Vec::new()), vec(change, 1..8)]
}
