//! What every store promises, told once and held against both.

use ratelimitd::engine::algorithm::Kernel;
use ratelimitd::engine::{
    Algorithm, Charge, Charges, Charging, Cost, FailurePolicy, Limit, LimitId, LimitSpec, Outcomes, Period,
    Quantity, Role, Unit, Verdict,
};
use ratelimitd::replay::{MemoryReplay, ReplayStore};

/// An hour boundary.
const T0: u64 = 1_699_999_200_000_000;
const HOUR_US: u64 = 3_600_000_000;

/// `limit` per hour.
fn hourly(algorithm: Algorithm, limit: u32) -> Kernel {
    let spec = LimitSpec::new(algorithm, limit, Period::one(Unit::Hour));
    match Limit::new(LimitId(0), spec, "contract").expect("a valid limit").quantity {
        Quantity::Limited(kernel) => kernel,
        Quantity::Unlimited => panic!("the limit is limited"),
    }
}

fn charge(kernel: Kernel, cost: Cost) -> Charge {
    Charge {
        kernel,
        cost,
        charging: Charging::Prepaid,
        role: Role::Enforce,
        on_store_failure: FailurePolicy::Error,
    }
}

fn request(charges: &[(&str, Charge)]) -> Charges {
    let mut all = Charges::default();
    for (key, charge) in charges {
        all.push(charge.clone(), |keys| keys.push_str(key));
    }
    all
}

/// A store under contract, which decides at given times.
pub(crate) struct Store<J>(pub(crate) J);

impl<J: ReplayStore> Store<J> {
    fn decide(&mut self, t_us: u64, charges: &[(&str, Charge)]) -> Outcomes {
        let request = request(charges);
        let mut decided = self.0.decide(&[(t_us, &request)]).expect("the store answers");
        decided.pop().expect("one answer for one request")
    }

    /// `O` or `X` and what remains, for each charge.
    fn spell(&mut self, t_us: u64, charges: &[(&str, Charge)]) -> String {
        let outcomes = self.decide(t_us, charges);
        let spelt = outcomes.decided().map(|outcome| {
            let verdict = if outcome.verdict == Verdict::Fits { 'O' } else { 'X' };
            format!("{verdict}{}", outcome.report.remaining)
        });
        spelt.collect::<Vec<_>>().join(" ")
    }
}

pub(crate) fn promises(store: &mut Store<impl ReplayStore>) {
    for algorithm in Algorithm::ALL {
        let name = |part: &str| format!("{algorithm}-{part}");
        counts_apart(store, algorithm, [&name("one"), &name("other")]);
        all_or_nothing(store, algorithm, [&name("wide"), &name("narrow")]);
        postpaid_always(store, algorithm, [&name("post"), &name("tight")]);
        roles(store, algorithm, [&name("dark"), &name("quota-a"), &name("quota-b")]);
        peeks_and_refunds(store, algorithm, &name("peek"));
        comes_back(store, algorithm, &name("back"));
    }
}

fn counts_apart(store: &mut Store<impl ReplayStore>, algorithm: Algorithm, [one, other]: [&str; 2]) {
    let take = charge(hourly(algorithm, 3), Cost::take(2));
    assert_eq!(store.spell(T0, &[(one, take.clone())]), "O1", "{algorithm}");
    assert_eq!(store.spell(T0, &[(other, take.clone())]), "O1", "{algorithm}: another key, another counter");
    assert_eq!(store.spell(T0, &[(one, take)]), "X1", "{algorithm}: a denial takes nothing");
}

fn all_or_nothing(store: &mut Store<impl ReplayStore>, algorithm: Algorithm, [wide, narrow]: [&str; 2]) {
    let both = [
        (wide, charge(hourly(algorithm, 10), Cost::take(3))),
        (narrow, charge(hourly(algorithm, 4), Cost::take(3))),
    ];
    assert_eq!(store.spell(T0, &both), "O7 O1", "{algorithm}");
    assert_eq!(store.spell(T0, &both), "O7 X1", "{algorithm}: neither is charged");
    let [wide, narrow] = both;
    assert_eq!(store.spell(T0, &[narrow, wide]), "X1 O7", "{algorithm}: in whatever order");
}

fn postpaid_always(store: &mut Store<impl ReplayStore>, algorithm: Algorithm, [post, tight]: [&str; 2]) {
    let postpaid = Charge { charging: Charging::Postpaid, ..charge(hourly(algorithm, 5), Cost::take(3)) };
    let both = [(post, postpaid.clone()), (tight, charge(hourly(algorithm, 2), Cost::take(3)))];
    assert_eq!(store.spell(T0, &both), "O2 X2", "{algorithm}: recorded though the request is denied");
    assert_eq!(
        store.spell(T0, &[(post, postpaid.clone())]),
        "X0",
        "{algorithm}: recorded though it does not fit"
    );
    assert_eq!(store.spell(T0, &[(post, postpaid)]), "X0", "{algorithm}");
}

fn roles(store: &mut Store<impl ReplayStore>, algorithm: Algorithm, [dark, a, b]: [&str; 3]) {
    let of = |limit, role| Charge { role, ..charge(hourly(algorithm, limit), Cost::take(3)) };
    let shadowed = [(dark, of(2, Role::NonBinding)), (a, of(5, Role::Quota(0))), (b, of(8, Role::Quota(1)))];
    assert_eq!(store.spell(T0, &shadowed), "X2 O2 O5", "{algorithm}: a shadow holds nothing back");
    assert_eq!(store.spell(T0, &shadowed), "X2 X2 O2", "{algorithm}: one quota of two holds nothing back");
    assert_eq!(store.spell(T0, &shadowed), "X2 X2 X2", "{algorithm}: both do, and nothing is charged");
}

fn peeks_and_refunds(store: &mut Store<impl ReplayStore>, algorithm: Algorithm, key: &str) {
    let mut ask = |cost| store.spell(T0, &[(key, charge(hourly(algorithm, 4), cost))]);
    assert_eq!(ask(Cost::PEEK), "O4", "{algorithm}");
    assert_eq!(ask(Cost::take(4)), "O0", "{algorithm}");
    assert_eq!(ask(Cost::PEEK), "X0", "{algorithm}: a peek where nothing remains");
    assert_eq!(ask(Cost::refund(1)), "O1", "{algorithm}");
    assert_eq!(ask(Cost::refund(9)), "O4", "{algorithm}: never above the limit");
    assert_eq!(ask(Cost::take(5)), "X4", "{algorithm}: more than the limit never fits");
}

fn comes_back(store: &mut Store<impl ReplayStore>, algorithm: Algorithm, key: &str) {
    let all = || charge(hourly(algorithm, 6), Cost::take(6));
    assert_eq!(store.spell(T0, &[(key, all())]), "O0", "{algorithm}");
    let denied = store.decide(T0 + 1, &[(key, all())]).by_charge[0].expect("decided").report;
    let wait_us = denied.retry_after.us().expect("it fits some time");
    assert!(wait_us > 0 && wait_us <= 2 * HOUR_US, "{algorithm}: {wait_us}");
    assert_eq!(
        store.decide(T0 + wait_us, &[(key, all())]).by_charge[0].expect("decided").verdict,
        Verdict::Over,
        "{algorithm}: early"
    );
    assert_eq!(store.spell(T0 + 1 + wait_us, &[(key, all())]), "O0", "{algorithm}: in time");
}

#[test]
fn memory_keeps_the_contract() {
    promises(&mut Store(MemoryReplay::new()));
}
