//! Each policy for hits, peeks and refunds; mixed policies; partial answers from the store; shares of local limits.

use std::sync::atomic::{AtomicU32, Ordering};

use engine::algorithm::{FixedWindow, Gcra, IntervalBucket, SlidingLog, SlidingWindow};
use engine::{Cost, Grant, Pacing, PartialOutcomes, Reservation, Role};

use super::*;
use crate::memory::MemoryOptions;
use base::clock::ManualClock;

const MINUTE_US: u64 = 60_000_000;
const NOW_US: u64 = 1_700_000_000_000_000;

struct FailingStore;

impl Store for FailingStore {
    async fn decide(&self, _: &Charges) -> Result<Outcomes, StoreError> {
        Err(StoreError::Timeout)
    }
}

fn layer(share: u32) -> Fallback<FailingStore, ManualClock> {
    let store = Arc::new(MemoryStore::new(MemoryOptions::default(), ManualClock::at(NOW_US)));
    Fallback::new(FailingStore, Local { store, instances: Arc::new(AtomicU32::new(share)) })
}

fn window(limit: u64) -> Kernel {
    Kernel::FixedWindow(FixedWindow::new(limit, MINUTE_US))
}

fn charge(kernel: Kernel, cost: Cost, on_store_failure: FailurePolicy) -> Charge {
    let (charging, role) = (Charging::Prepaid, Role::Enforce);
    Charge { kernel, cost, charging, role, on_store_failure }
}

fn charges(each: impl IntoIterator<Item = Charge>) -> Charges {
    let mut all = Charges::default();
    for (index, charge) in each.into_iter().enumerate() {
        all.push(charge, |key| key.push_str(&index.to_string()));
    }
    all
}

async fn decide_one(
    layer: &Fallback<FailingStore, ManualClock>,
    charge: Charge,
) -> Result<Outcome, StoreError> {
    layer.decide(&charges([charge])).await.map(|outcomes| outcomes.by_charge[0])
}

#[tokio::test]
async fn hits_peeks_and_refunds_by_each_policy() {
    use FailurePolicy::{Allow, Deny, Local};
    let (take, refund) = (Cost::take(3), Cost::refund(3));
    let rows = [
        // (policy, cost, verdict, remaining of 10)
        (Allow, take, Verdict::Fits, 7),
        (Allow, Cost::PEEK, Verdict::Fits, 10), // takes nothing
        (Allow, refund, Verdict::Fits, 10),
        (Allow, Cost::take(11), Verdict::Over, 0), // never fits
        (Deny, take, Verdict::Over, 0),
        (Deny, Cost::PEEK, Verdict::Over, 0), // a hit would be denied
        (Deny, refund, Verdict::Fits, 10),    // a refund is never denied
        (Local, take, Verdict::Fits, 7),
        (Local, Cost::PEEK, Verdict::Fits, 10),
        (Local, refund, Verdict::Fits, 10), // an empty counter
        (Local, Cost::take(11), Verdict::Over, 10),
    ];
    for (policy, cost, verdict, remaining) in rows {
        let outcome =
            decide_one(&layer(1), charge(window(10), cost, policy)).await.expect("a policy that answers");
        let decided = (outcome.verdict, outcome.report.remaining, outcome.decided_by);
        assert_eq!(decided, (verdict, remaining, DecidedBy::Policy(policy)), "{policy:?} {cost:?}");
    }
    for cost in [take, Cost::PEEK, refund] {
        let answer = decide_one(&layer(1), charge(window(10), cost, FailurePolicy::Error)).await;
        assert_eq!(answer, Err(StoreError::Policy(Box::new(StoreError::Timeout))), "{cost:?}");
    }
}

#[tokio::test]
async fn a_limit_of_0_asks_no_store_and_no_policy() {
    use FailurePolicy::{Allow, Deny, Error, Local};
    let blocked = |policy| charge(Kernel::Blocked(Blocked::new(MINUTE_US)), Cost::take(1), policy);
    for policy in [Allow, Deny, Local, Error] {
        let outcome = decide_one(&layer(1), blocked(policy)).await.expect("no store is needed");
        assert_eq!((outcome.verdict, outcome.report.retry_after), (Verdict::Over, RetryAfter::Never));
        assert_eq!(outcome.report.until_reset_us, MINUTE_US - NOW_US % MINUTE_US);
        assert!(matches!(outcome.decided_by, DecidedBy::Store(_)), "{policy:?}");
    }
    // Next to a limit whose store fails: only that limit is answered by policy.
    let layer = layer(1);
    let mixed = charges([blocked(Error), charge(window(10), Cost::take(1), Local)]);
    let outcomes = layer.decide(&mixed).await.expect("the other policy answers");
    let remaining: Vec<_> = outcomes.by_charge.iter().map(|outcome| outcome.report.remaining).collect();
    assert_eq!(remaining, [0, 10], "the request is denied, so the other limit is not charged");
    let decided_by: Vec<_> = outcomes.by_charge.iter().map(|outcome| outcome.decided_by).collect();
    assert!(matches!(decided_by[..], [DecidedBy::Store(_), DecidedBy::Policy(Local)]), "{decided_by:?}");
}

#[tokio::test]
async fn a_local_refund_gives_back_what_was_taken_locally() {
    let layer = layer(1);
    let remaining = async |cost| {
        let asked = charge(window(10), cost, FailurePolicy::Local);
        decide_one(&layer, asked).await.expect("memory answers").report.remaining
    };
    assert_eq!(remaining(Cost::take(6)).await, 4);
    assert_eq!(remaining(Cost::refund(2)).await, 6);
    assert_eq!(remaining(Cost::PEEK).await, 6);
}

#[tokio::test]
async fn limits_of_one_request_keep_their_own_policies() {
    let hit = |policy| charge(window(10), Cost::take(1), policy);
    let layer = layer(1);
    let mixed = charges([hit(FailurePolicy::Allow), hit(FailurePolicy::Local)]);
    let outcomes = layer.decide(&mixed).await.expect("both answer");
    let decided_by: Vec<_> = outcomes.by_charge.iter().map(|outcome| outcome.decided_by).collect();
    assert_eq!(
        decided_by,
        [DecidedBy::Policy(FailurePolicy::Allow), DecidedBy::Policy(FailurePolicy::Local)]
    );

    let denied = charges([hit(FailurePolicy::Deny), hit(FailurePolicy::Local)]);
    let outcomes = layer.decide(&denied).await.expect("both answer");
    assert_eq!(
        (outcomes.by_charge[0].verdict, outcomes.by_charge[1].verdict),
        (Verdict::Over, Verdict::Fits)
    );
    assert_eq!(
        outcomes.by_charge[1].report.remaining, 9,
        "the local one is not charged for a denied request"
    );

    // A limit that denies nothing does not fail the call, and its outcome names the policy.
    let idle = Charge { role: Role::IdleQuota, ..hit(FailurePolicy::Error) };
    let outcome = decide_one(&layer, idle).await.expect("a limit that denies nothing does not fail the call");
    assert_eq!(outcome.decided_by, DecidedBy::Policy(FailurePolicy::Allow));
}

#[tokio::test]
async fn a_settle_is_admitted_by_each_policy_and_recorded_by_none() {
    let layer = layer(1);
    for policy in FailurePolicy::ALL {
        for cost in [Cost::take(20), Cost::undo(3, Grant { id: 7, limit: None }), Cost::refund(0)] {
            let settle = Charge {
                cost,
                role: Role::Settle,
                charging: Charging::Postpaid,
                ..charge(window(10), cost, *policy)
            };
            let outcome = decide_one(&layer, settle).await.expect("a settle does not fail the call");
            let used = policy.allow_for_error();
            assert_eq!((outcome.verdict, outcome.decided_by), (Verdict::Fits, DecidedBy::Policy(used)));
        }
    }
    let local = decide_one(&layer, charge(window(10), Cost::take(1), FailurePolicy::Local)).await;
    assert_eq!(local.expect("memory answers").report.remaining, 9, "the first unit of the local counter");
}

#[tokio::test]
async fn what_is_certain_beats_an_error() {
    use FailurePolicy::{Allow, Deny, Error, Local};
    use Role::{Enforce, IdleQuota, Quota};
    use Verdict::{Fits, Over};
    let (five, blocked) = (window(5), Kernel::Blocked(Blocked::new(MINUTE_US)));
    let row = |kernel, units, policy, role| Charge { role, ..charge(kernel, Cost::take(units), policy) };
    let one = |policy| row(five, 1, policy, Enforce);
    let six = |policy| row(five, 6, policy, Enforce);
    let used_up = |role| row(window(1), 1, Local, role);
    let rows = [
        // (name, charges, verdicts; `None` if the call fails)
        ("a used-up local limit", vec![used_up(Enforce), one(Error)], Some(vec![Over, Fits])),
        ("the error first", vec![one(Error), used_up(Enforce)], Some(vec![Fits, Over])),
        ("a local limit with room", vec![one(Local), one(Error)], None),
        ("policy deny", vec![one(Error), one(Deny)], Some(vec![Fits, Over])),
        ("policy allow", vec![one(Error), one(Allow)], None),
        ("a limit of 0", vec![one(Error), row(blocked, 1, Error, Enforce)], Some(vec![Fits, Over])),
        ("a cost that never fits", vec![six(Error)], Some(vec![Over])),
        ("a cost that never fits elsewhere", vec![six(Allow), one(Error)], Some(vec![Over, Fits])),
        ("a shadow rule denies nothing", vec![used_up(IdleQuota), one(Error)], None),
        ("one of two quota groups", vec![used_up(Quota(0)), row(five, 1, Error, Quota(1))], None),
        (
            "a quota group with room",
            vec![row(five, 1, Local, Quota(0)), row(five, 1, Error, Quota(1))],
            Some(vec![Fits, Fits]),
        ),
        (
            "both quota groups, and an error beside them",
            vec![used_up(Quota(0)), row(five, 1, Deny, Quota(1)), one(Error)],
            Some(vec![Over, Over, Fits]),
        ),
    ];
    for (name, asked, expected) in rows {
        let layer = layer(1);
        let asked = charges(asked);
        let uses_up = |_, charge: &Charge| (charge.kernel == window(1)).then(|| charge.clone());
        let before = asked.filter_map(uses_up);
        layer.decide(&before).await.expect("memory answers");
        let expected = expected.ok_or_else(|| StoreError::Policy(Box::new(StoreError::Timeout)));
        let verdicts = layer
            .decide(&asked)
            .await
            .map(|outcomes| outcomes.by_charge.iter().map(|outcome| outcome.verdict).collect::<Vec<_>>());
        assert_eq!(verdicts, expected, "{name}");
    }
}

/// The caller can let a failed request through. If it did not count, a local limit that is always matched together with
/// limits of the policy `error` would never deny.
#[tokio::test]
async fn a_local_limit_counts_requests_that_fail() {
    let layer = layer(1);
    let asked = charges(
        [FailurePolicy::Local, FailurePolicy::Error].map(|policy| charge(window(3), Cost::take(1), policy)),
    );
    let mut answers = Vec::new();
    for _ in 0..5 {
        let answer = layer.decide(&asked).await;
        answers.push(answer.map(|outcomes| [0, 1].map(|index| outcomes.is_over(index))));
    }
    let failed = Err(StoreError::Policy(Box::new(StoreError::Timeout)));
    assert_eq!(answers[..3], [failed.clone(), failed.clone(), failed]);
    assert_eq!(answers[3..], [Ok([true, false]), Ok([true, false])]);
}

/// Answers only the first charge, from its own counter, and counts the requests that were kept.
struct HalfStore {
    memory: MemoryStore<ManualClock>,
    kept: Arc<AtomicU32>,
}

#[derive(Debug)]
struct Kept(Arc<AtomicU32>);

impl Reservation for Kept {
    fn keep(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Store for HalfStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let first = charges.filter_map(|index, charge| (index == 0).then(|| charge.clone()));
        let answered = self.memory.decide(&first).await?.by_charge.into_iter().map(Ok);
        let others = (1..charges.len()).map(|_| Err(StoreError::Timeout));
        PartialOutcomes::collect(
            answered.chain(others).collect(),
            Some(Arc::new(Kept(Arc::clone(&self.kept)))),
        )
    }
}

#[tokio::test]
async fn only_the_unanswered_part_of_a_request_is_left_to_its_policy() {
    use FailurePolicy::{Allow, Deny, Error, Local};
    use Role::{Enforce, IdleQuota, Quota};
    use Verdict::{Fits, Over};
    let failed = || Err(StoreError::Policy(Box::new(StoreError::Timeout)));
    let rows = [
        // (units left in the store, policy and role without an answer, verdicts, kept)
        (5, Enforce, Allow, Enforce, Ok([Fits, Fits]), true),
        (5, Enforce, Deny, Enforce, Ok([Fits, Over]), false),
        (5, Enforce, Local, Enforce, Ok([Fits, Fits]), true),
        (5, Enforce, Error, Enforce, failed(), false),
        (5, Enforce, Error, IdleQuota, Ok([Fits, Fits]), true), // a shadow rule fails no request
        (5, Enforce, Deny, IdleQuota, Ok([Fits, Over]), true),
        (0, Enforce, Allow, Enforce, Ok([Over, Fits]), false), // exhausted, whatever the other limit answers
        (0, Enforce, Error, Enforce, Ok([Over, Fits]), false),
        (0, Enforce, Local, Enforce, Ok([Over, Fits]), false),
        (0, IdleQuota, Error, Enforce, failed(), false),
        (5, Quota(0), Error, Quota(1), Ok([Fits, Fits]), true), // one quota group fits, so no other can deny
        (0, Quota(0), Error, Quota(1), failed(), false),
        (0, Quota(0), Deny, Quota(1), Ok([Over, Over]), false),
        (0, Quota(0), Local, Quota(1), Ok([Over, Fits]), true),
    ];
    for (left, known_role, policy, role, expected, is_kept) in rows {
        let (kept, local) = (Arc::default(), layer(1).local);
        let memory = MemoryStore::new(MemoryOptions::default(), ManualClock::at(NOW_US));
        let layer = Fallback::new(HalfStore { memory, kept: Arc::clone(&kept) }, local);
        let known = Charge { role: known_role, ..charge(window(left), Cost::take(1), Error) };
        let unknown = Charge { role, ..charge(window(10), Cost::take(1), policy) };
        let asked = charges([known, unknown]);
        let answer = layer.decide(&asked).await;
        let row = format!("{left} {known_role:?} {policy:?} {role:?}");
        let verdicts = answer.map(|outcomes| [0, 1].map(|i| outcomes.by_charge[i].verdict));
        assert_eq!(verdicts, expected, "{row}");
        assert_eq!(kept.load(Ordering::Relaxed), u32::from(is_kept), "{row}");
    }
}

#[tokio::test]
async fn a_local_limit_is_not_charged_for_a_request_that_the_store_denies() {
    let local_after = async |left| {
        let memory = MemoryStore::new(MemoryOptions::default(), ManualClock::at(NOW_US));
        let layer = Fallback::new(HalfStore { memory, kept: Arc::default() }, layer(1).local);
        let hit = |kernel| charge(kernel, Cost::take(1), FailurePolicy::Local);
        let outcomes = layer.decide(&charges([hit(window(left)), hit(window(10))])).await.expect("an answer");
        outcomes.by_charge[1].report.remaining
    };
    assert_eq!((local_after(5).await, local_after(0).await), (9, 10));
}

#[tokio::test]
async fn each_process_enforces_its_share_of_a_local_limit() {
    let gcra = |limit, burst| Kernel::Gcra(Gcra::new(limit, MINUTE_US, burst, Pacing::Meter));
    let bucket = Kernel::IntervalBucket(IntervalBucket::new(10, 5, MINUTE_US));
    let rows = [
        // (limit, processes, hits that one of them admits)
        (window(10), 1, 10),
        (window(10), 4, 3), // 2.5, rounded up
        (window(8), 4, 2),
        (window(3), 1_000, 1), // rounded up
        (Kernel::SlidingWindow(SlidingWindow::new(10, MINUTE_US)), 4, 3),
        (Kernel::SlidingLog(SlidingLog::new(10, MINUTE_US)), 4, 3),
        (gcra(60, 10), 4, 3),
        (bucket, 4, 3),
        (Kernel::Blocked(Blocked::new(60_000_000)), 4, 0),
    ];
    for (kernel, processes, expected) in rows {
        let layer = layer(processes);
        let mut admitted = 0;
        for _ in 0..20 {
            let hit = charge(kernel, Cost::take(1), FailurePolicy::Local);
            let outcome = decide_one(&layer, hit).await.expect("memory answers");
            admitted += u32::from(outcome.verdict == Verdict::Fits);
        }
        assert_eq!(admitted, expected, "{kernel:?} of {processes}");
    }
}

#[tokio::test]
async fn the_number_of_processes_may_change_and_is_at_least_1() {
    let layer = layer(0);
    let left = async |limit| {
        let hit = charge(window(limit), Cost::take(1), FailurePolicy::Local);
        decide_one(&layer, hit).await.expect("memory answers").report.remaining
    };
    assert_eq!(left(10).await, 9, "not known yet: the whole limit");
    layer.local.instances.store(5, Ordering::Relaxed);
    assert_eq!(left(10).await, 0, "a fifth of 10 is 2, and 2 are taken");
    layer.local.instances.store(2, Ordering::Relaxed);
    assert_eq!(left(10).await, 2, "a half of 10 is 5, and 3 are taken");
}

#[test]
fn a_share_divides_rate_and_burst() {
    let share = NonZeroU32::new(4).expect("not zero");
    let whole = Kernel::Gcra(Gcra::new(60, MINUTE_US, 10, Pacing::Queue));
    assert_eq!(whole.share_of(share), Kernel::Gcra(Gcra::new(15, MINUTE_US, 3, Pacing::Queue)));
    let bucket = |capacity, refill| IntervalBucket::new(capacity, refill, MINUTE_US);
    let whole = Kernel::IntervalBucket(bucket(10, 5));
    assert_eq!(whole.share_of(share), Kernel::IntervalBucket(bucket(3, 2)));
}
