//! Requests over several slots.

use super::*;
use crate::store::redis::error::shut_down;
use crate::store::redis::testing::PanickingObserver;

#[tokio::test(start_paused = true)]
async fn a_request_over_several_slots_is_one_call_per_slot() {
    let case = case(|call| Some(call.counts(if call.host == "a.test" { 1 } else { 2 })));
    let charges = charges(&[(HIGH, Cost::take(1)), (LOW, Cost::take(1)), (HIGH, Cost::take(1))]);
    let outcomes = case.decide(&charges).await.expect("an answer");
    assert_eq!(remaining(&outcomes), [3, 4, 3], "in the order of the charges");
    assert_eq!(case.calls(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_denial_undoes_what_other_slots_recorded() {
    let case = case(|call| {
        Some(match (call.host, call.is_undo()) {
            ("a.test", false) => call.counts(1),
            ("a.test", true) => call.counts(0),
            _ => call.denied(),
        })
    });
    let outcomes = case.decide(&charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))])).await;
    let outcomes = outcomes.expect("an answer");
    assert_eq!(verdicts(&outcomes), [Verdict::Fits, Verdict::Over]);
    assert_eq!(remaining(&outcomes), [5, 0], "the outcome after the undo");
    assert_eq!(case.calls(), [2, 1], "only the recorded charge is undone");
    assert_eq!(case.lost_undos.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_denial_waits_for_its_undos_until_the_deadline() {
    let case = case(|call| match (call.host, call.is_undo()) {
        ("a.test", true) => Some(Reply::After(100 * MS, Box::new(call.counts(0)))),
        ("b.test", _) => Some(call.denied()),
        _ => None,
    });
    let started = Instant::now();
    let outcomes = case.decide(&charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))])).await;
    assert_eq!(remaining(&outcomes.expect("an answer")), [4, 0], "the outcome before the undo");
    assert_eq!(started.elapsed(), 15 * MS);
    sleep(1_000 * MS).await;
    assert_eq!(case.lost_undos.load(Ordering::Relaxed), 0, "the undo took longer but is not lost");
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_fails_is_reported() {
    let case = case(|call| match (call.host, call.is_undo()) {
        ("a.test", true) => Some(Reply::Error("OOM command not allowed")),
        ("b.test", _) => Some(call.denied()),
        _ => None,
    });
    let outcomes = case.decide(&charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))])).await;
    assert_eq!(verdicts(&outcomes.expect("an answer")), [Verdict::Fits, Verdict::Over]);
    assert_eq!(case.lost_undos.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_task_panics_fails_although_the_store_is_open() {
    let mut case = case(|call| match (call.host, call.is_undo()) {
        ("a.test", true) => Some(Reply::Error("OOM command not allowed")),
        ("b.test", _) => Some(call.denied()),
        _ => None,
    });
    let cluster = Cluster::start(&options(), Arc::new(PanickingObserver::AtLostUndo));
    case.cluster = Arc::new(cluster.expect("good options"));
    let failure = case.decide(&charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))])).await;
    assert_eq!(failure, Err(ended_without_answer()));
    case.hit(LOW).await.expect("other requests are answered");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_replied_at_once_and_the_other_slot_is_undone() {
    let case = case(|call| match (call.host, call.is_undo()) {
        ("a.test", true) => Some(Reply::After(5 * MS, Box::new(call.counts(0)))),
        ("b.test", _) => Some(Reply::Error("OOM command not allowed")),
        _ => None,
    });
    let started = Instant::now();
    let failure = case.decide(&charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))])).await;
    assert_eq!(failure, Err(StoreError::Refused("OOM command not allowed".to_owned())));
    assert_eq!(started.elapsed(), Duration::ZERO);
    sleep(10 * MS).await;
    assert_eq!((case.calls(), case.lost_undos.load(Ordering::Relaxed)), ([2, 1], 0));
}

#[tokio::test(start_paused = true)]
async fn a_refund_waits_until_the_request_is_admitted() {
    let is_denying = Arc::new(AtomicUsize::new(0));
    let denying = Arc::clone(&is_denying);
    let case = case(move |call| {
        let is_denied = call.host == "b.test" && denying.load(Ordering::Relaxed) == 1;
        is_denied.then(|| call.denied())
    });
    let charges = charges(&[(LOW, Cost::refund(1)), (HIGH, Cost::take(1))]);
    case.decide(&charges).await.expect("an answer");
    assert_eq!(case.calls(), [2, 1], "a peek, then the refund");
    is_denying.store(1, Ordering::Relaxed);
    let outcomes = case.decide(&charges).await.expect("an answer");
    assert_eq!(verdicts(&outcomes), [Verdict::Fits, Verdict::Over]);
    assert_eq!(case.calls(), [3, 2], "a peek, and no refund");
}

#[tokio::test(start_paused = true)]
async fn the_undo_goes_on_when_the_caller_is_gone() {
    let case = case(|call| match (call.host, call.is_undo()) {
        ("b.test", _) => Some(Reply::After(10 * MS, Box::new(call.denied()))),
        _ => None,
    });
    let charges = charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))]);
    timeout(MS, case.decide(&charges)).await.expect_err("the caller leaves");
    assert_eq!(case.calls(), [1, 1]);
    sleep(20 * MS).await;
    assert_eq!(case.calls(), [2, 1]);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_undos_and_then_refuses_requests() {
    let case = case(|call| match (call.host, call.is_undo()) {
        ("a.test", true) => Some(Reply::After(100 * MS, Box::new(call.counts(0)))),
        ("b.test", _) => Some(call.denied()),
        _ => None,
    });
    case.decide(&charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))])).await.expect("an answer");
    let started = Instant::now();
    assert_eq!(case.cluster.shutdown().await, Ok(()));
    assert_eq!(started.elapsed(), 85 * MS);
    assert_eq!(case.hit(LOW).await, Err(shut_down()));
}
