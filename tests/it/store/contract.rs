//! The contract of every store: [`Store`] and a clock that the test sets. Each store has one test that calls
//! [`contract`].

use std::sync::Arc;

use ::store::clock::ManualClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::algorithm::Kernel;
use engine::{
    Algorithm, Charge, Charges, Charging, Cost, FailurePolicy, Limit, LimitSpec, Outcomes, Period, Quantity,
    Role, Store, Unit, Verdict,
};

/// An hour boundary.
const T0: u64 = 1_699_999_200_000_000;
const HOUR_US: u64 = 3_600_000_000;

/// `limit` per hour.
fn hourly(algorithm: Algorithm, limit: u64) -> Kernel {
    let spec = LimitSpec::new(algorithm, limit, Period::one(Unit::Hour));
    match Limit::new(spec).expect("a valid limit").quantity {
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

/// Checks that an empty store keeps the contract. `clock` is the clock that the store reads.
pub(crate) async fn contract(store: impl Store, clock: Arc<ManualClock>) {
    let subject = Subject { store, clock };
    for &algorithm in Algorithm::ALL {
        counts_keys_separately(&subject, algorithm).await;
        charges_all_or_none(&subject, algorithm).await;
        records_postpaid_charges_always(&subject, algorithm).await;
        decides_postpaid_charges_in_turn(&subject, algorithm).await;
        denies_by_role(&subject, algorithm).await;
        peeks_and_refunds(&subject, algorithm).await;
        admits_again_after_the_wait(&subject, algorithm).await;
    }
}

struct Subject<S> {
    store: S,
    clock: Arc<ManualClock>,
}

impl<S: Store> Subject<S> {
    async fn decide(&self, now_us: u64, charges: &[(&str, Charge)]) -> Outcomes {
        self.clock.set(now_us);
        self.store.decide(&request(charges)).await.expect("the store answers")
    }

    /// For each charge `O` (fits) or `X` (over), and the units that remain.
    async fn answers(&self, now_us: u64, charges: &[(&str, Charge)]) -> String {
        let outcomes = self.decide(now_us, charges).await;
        let answers = outcomes.by_charge.iter().map(|outcome| {
            let verdict = if outcome.verdict == Verdict::Fits { 'O' } else { 'X' };
            format!("{verdict}{}", outcome.report.remaining)
        });
        answers.collect::<Vec<_>>().join(" ")
    }
}

async fn counts_keys_separately(store: &Subject<impl Store>, algorithm: Algorithm) {
    let (one, other) = (format!("{algorithm}-one"), format!("{algorithm}-other"));
    let take = charge(hourly(algorithm, 3), Cost::take(2));
    assert_eq!(store.answers(T0, &[(&one, take.clone())]).await, "O1", "{algorithm}");
    assert_eq!(store.answers(T0, &[(&other, take.clone())]).await, "O1", "{algorithm}: another key");
    assert_eq!(store.answers(T0, &[(&one, take)]).await, "X1", "{algorithm}: a denial takes nothing");
}

async fn charges_all_or_none(store: &Subject<impl Store>, algorithm: Algorithm) {
    let (wide, narrow) = (format!("{algorithm}-wide"), format!("{algorithm}-narrow"));
    let both = [
        (wide.as_str(), charge(hourly(algorithm, 10), Cost::take(3))),
        (narrow.as_str(), charge(hourly(algorithm, 4), Cost::take(3))),
    ];
    assert_eq!(store.answers(T0, &both).await, "O7 O1", "{algorithm}");
    assert_eq!(store.answers(T0, &both).await, "O7 X1", "{algorithm}: neither is charged");
    let [wide, narrow] = both;
    assert_eq!(store.answers(T0, &[narrow, wide]).await, "X1 O7", "{algorithm}: in any order");
}

async fn records_postpaid_charges_always(store: &Subject<impl Store>, algorithm: Algorithm) {
    let (post, tight) = (format!("{algorithm}-post"), format!("{algorithm}-tight"));
    let postpaid = Charge { charging: Charging::Postpaid, ..charge(hourly(algorithm, 5), Cost::take(3)) };
    let both = [(post.as_str(), postpaid.clone()), (&tight, charge(hourly(algorithm, 2), Cost::take(3)))];
    assert_eq!(
        store.answers(T0, &both).await,
        "O2 X2",
        "{algorithm}: recorded although the request is denied"
    );
    let again = [(post.as_str(), postpaid)];
    assert_eq!(store.answers(T0, &again).await, "X0", "{algorithm}: recorded although it does not fit");
    assert_eq!(store.answers(T0, &again).await, "X0", "{algorithm}");
}

async fn decides_postpaid_charges_in_turn(store: &Subject<impl Store>, algorithm: Algorithm) {
    let (post, pre) = (format!("{algorithm}-turn"), format!("{algorithm}-whole"));
    let postpaid = |group, cost| Charge {
        charging: Charging::Postpaid,
        role: Role::Quota(group),
        ..charge(hourly(algorithm, 4), cost)
    };
    let several = [
        (post.as_str(), postpaid(0, Cost::take(3))),
        (&pre, charge(hourly(algorithm, 9), Cost::take(1))),
        (&post, postpaid(1, Cost::PEEK)),
        (&post, postpaid(2, Cost::take(2))),
        (&pre, charge(hourly(algorithm, 9), Cost::take(2))),
        (&post, postpaid(3, Cost::refund(2))),
    ];
    assert_eq!(store.answers(T0, &several).await, "O1 O6 O1 X0 O1", "{algorithm}: not all quotas are over");
    let two = [
        (post.as_str(), postpaid(0, Cost::take(2))),
        (&pre, several[1].1.clone()),
        (&post, postpaid(1, Cost::take(1))),
    ];
    assert_eq!(
        store.answers(T0, &two).await,
        "X0 O6 X0",
        "{algorithm}: all are, and the prepaid charge is not recorded"
    );
    let emptied = [(post.as_str(), postpaid(0, Cost::refund(9))), (&post, postpaid(1, Cost::take(1)))];
    assert_eq!(store.answers(T0, &emptied).await, "O4 O3", "{algorithm}: empty, and used again");
}

async fn denies_by_role(store: &Subject<impl Store>, algorithm: Algorithm) {
    let [shadow, a, b] = ["shadow", "quota-a", "quota-b"].map(|part| format!("{algorithm}-{part}"));
    let with = |limit, role| Charge { role, ..charge(hourly(algorithm, limit), Cost::take(3)) };
    let charges = [
        (shadow.as_str(), with(2, Role::NonBinding)),
        (&a, with(5, Role::Quota(0))),
        (&b, with(8, Role::Quota(1))),
    ];
    assert_eq!(store.answers(T0, &charges).await, "X2 O2 O5", "{algorithm}: a shadow rule denies nothing");
    assert_eq!(
        store.answers(T0, &charges).await,
        "X2 X2 O2",
        "{algorithm}: one of two quotas denies nothing"
    );
    assert_eq!(
        store.answers(T0, &charges).await,
        "X2 X2 X2",
        "{algorithm}: both deny, and nothing is charged"
    );
}

async fn peeks_and_refunds(store: &Subject<impl Store>, algorithm: Algorithm) {
    let key = format!("{algorithm}-peek");
    let table = [
        (Cost::PEEK, "O4", "an empty counter"),
        (Cost::take(4), "O0", "all units"),
        (Cost::PEEK, "X0", "a peek where nothing remains"),
        (Cost::refund(1), "O1", "a refund"),
        (Cost::refund(9), "O4", "never above the limit"),
        (Cost::take(5), "X4", "more than the limit never fits"),
    ];
    for (cost, expected, case) in table {
        let charge = charge(hourly(algorithm, 4), cost);
        assert_eq!(store.answers(T0, &[(&key, charge)]).await, expected, "{algorithm}: {case}");
    }
}

async fn admits_again_after_the_wait(store: &Subject<impl Store>, algorithm: Algorithm) {
    let key = format!("{algorithm}-wait");
    let all = [(key.as_str(), charge(hourly(algorithm, 6), Cost::take(6)))];
    assert_eq!(store.answers(T0, &all).await, "O0", "{algorithm}");
    let denied = store.decide(T0 + 1, &all).await.by_charge[0].report;
    let wait_us = denied.retry_after.us().expect("it fits some time");
    assert!(wait_us > 0 && wait_us <= 2 * HOUR_US, "{algorithm}: {wait_us}");
    let early = store.decide(T0 + wait_us, &all).await.by_charge[0].verdict;
    assert_eq!(early, Verdict::Over, "{algorithm}: one microsecond early");
    assert_eq!(store.answers(T0 + 1 + wait_us, &all).await, "O0", "{algorithm}: in time");
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    let clock = Arc::new(ManualClock::default());
    contract(MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock)), clock).await;
}
