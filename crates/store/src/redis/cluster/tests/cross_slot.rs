//! Requests over several slots.

use engine::PartialOutcomes;

use super::*;
use crate::redis::error::{ended_without_answer, shut_down};
use crate::redis::testing::PanickingObserver;

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
async fn an_undo_on_a_far_node_has_the_time_of_its_round_trips() {
    const TIMEOUT: Duration = Duration::from_millis(1_000);
    let mut case = case(|call| match (call.host, call.is_undo()) {
        ("a.test", true) => Some(Reply::After(900 * MS, Box::new(call.counts(0)))),
        ("b.test", _) => Some(Reply::After(900 * MS, Box::new(call.denied()))),
        _ => None,
    });
    let observer = Arc::new(LostUndos(Arc::clone(&case.lost_undos)));
    let store = RedisStore::new(&RedisOptions { timeout: TIMEOUT, ..options() }, observer);
    case.store = store.expect("good options");
    let charges = charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))]);
    let started = Instant::now();
    let decided = case.decide(&charges).await;
    assert_eq!(verdicts(&decided.expect("an answer")), [Verdict::Fits, Verdict::Over]);
    assert_eq!(started.elapsed(), TIMEOUT, "the caller waits for the undo until the deadline");
    sleep(2 * TIMEOUT).await;
    assert_eq!(case.calls(), [2, 1]);
    assert_eq!(case.lost_undos.load(Ordering::Relaxed), 0);
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
async fn an_undo_that_the_script_could_not_make_is_reported() {
    let case = case(|call| match (call.host, call.is_undo()) {
        ("a.test", true) | ("b.test", _) => Some(call.denied()),
        _ => None,
    });
    let outcomes = case.decide(&charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))])).await;
    let outcomes = outcomes.expect("an answer");
    assert_eq!(verdicts(&outcomes), [Verdict::Fits, Verdict::Over]);
    assert_eq!(remaining(&outcomes), [4, 0], "the outcome before the undo");
    assert_eq!(case.lost_undos.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_task_panics_fails_although_the_store_is_open() {
    let mut case = case(|call| match (call.host, call.is_undo()) {
        ("a.test", true) => Some(Reply::Error("OOM command not allowed")),
        ("b.test", _) => Some(call.denied()),
        _ => None,
    });
    let store = RedisStore::new(&options(), Arc::new(PanickingObserver::AtLostUndo));
    case.store = store.expect("good options");
    let failure = case.decide(&charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))])).await;
    assert_eq!(failure, Err(ended_without_answer()));
    case.hit(LOW).await.expect("other requests are answered");
}

/// Returns the result of a request that `b.test` never answers, and the calls before and after the request ends.
async fn decide_half(
    charges: &Charges,
    end: impl FnOnce(PartialOutcomes),
) -> (Vec<Result<Verdict, StoreError>>, [[usize; 2]; 2]) {
    let case = case(|call| match (call.host, call.is_undo()) {
        ("a.test", true) => Some(Reply::After(5 * MS, Box::new(call.counts(0)))),
        ("b.test", _) => Some(Reply::Error("OOM command not allowed")),
        _ => None,
    });
    let started = Instant::now();
    let Err(StoreError::Partial(partial)) = case.decide(charges).await else { panic!("one slot answers") };
    assert_eq!(started.elapsed(), Duration::ZERO, "the caller waits for no undo");
    let error = StoreError::Partial(partial.clone());
    let outcomes = (0..charges.len()).map(|index| match error.outcome(index) {
        Ok(outcome) => Ok(outcome.verdict),
        Err(error) => Err(error.clone()),
    });
    let outcomes = outcomes.collect();
    drop(error);
    sleep(10 * MS).await;
    let before = case.calls();
    end(*partial);
    sleep(10 * MS).await;
    assert_eq!(case.lost_undos.load(Ordering::Relaxed), 0);
    (outcomes, [before, case.calls()])
}

fn out_of_memory() -> StoreError {
    StoreError::Refused("OOM command not allowed".to_owned())
}

#[tokio::test(start_paused = true)]
async fn what_a_healthy_slot_recorded_is_kept_or_undone_by_the_final_verdict() {
    let charges = charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))]);
    let (outcomes, calls) = decide_half(&charges, |partial| partial.keep()).await;
    assert_eq!(outcomes, [Ok(Verdict::Fits), Err(out_of_memory())]);
    assert_eq!(calls, [[1, 1], [1, 1]], "kept");
    let (_, calls) = decide_half(&charges, drop).await;
    assert_eq!(calls, [[1, 1], [2, 1]], "undone, because the request was not admitted");
}

#[tokio::test(start_paused = true)]
async fn a_refund_beside_a_slot_without_an_answer_waits_for_the_final_verdict() {
    let charges = charges(&[(LOW, Cost::refund(1)), (HIGH, Cost::take(1))]);
    let (outcomes, calls) = decide_half(&charges, |partial| partial.keep()).await;
    assert_eq!(outcomes, [Ok(Verdict::Fits), Err(out_of_memory())]);
    assert_eq!(calls, [[1, 1], [2, 1]], "a peek, then the refund");
    let (_, calls) = decide_half(&charges, drop).await;
    assert_eq!(calls, [[1, 1], [1, 1]], "a peek, and no refund");
}

#[tokio::test(start_paused = true)]
async fn a_denial_stands_although_another_slot_has_no_answer() {
    let case = case(|call| match (call.host, call.key_count()) {
        ("a.test", 2) => Some(call.denied()),
        ("b.test", _) => Some(Reply::Error("OOM command not allowed")),
        _ => None,
    });
    let all = charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1)), (LOW, Cost::take(1))]);
    let error = case.decide(&all).await.expect_err("one slot has no answer");
    let is_over = |unknown| [0, 1, 2].map(|index| error.is_over(index, unknown));
    assert_eq!(is_over(false), [true, false, true]);
    assert_eq!(is_over(true), [true, true, true]);
    assert_eq!(case.calls(), [1, 1], "nothing is recorded, so nothing is undone");
}

#[tokio::test(start_paused = true)]
async fn a_request_without_any_answer_fails_with_the_error() {
    let case = case(|_| Some(Reply::Error("OOM command not allowed")));
    let all = charges(&[(LOW, Cost::take(1)), (HIGH, Cost::take(1))]);
    assert_eq!(case.decide(&all).await, Err(out_of_memory()));
    assert_eq!(case.calls(), [1, 1]);
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
    assert_eq!(case.store.shutdown().await, Ok(()));
    assert_eq!(started.elapsed(), 85 * MS);
    assert_eq!(case.hit(LOW).await, Err(shut_down()));
}
