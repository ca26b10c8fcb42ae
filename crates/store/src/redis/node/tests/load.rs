//! A node under load: bursts and overload.

use std::sync::atomic::{AtomicUsize, Ordering};

use engine::algorithm::{FixedWindow, Kernel};
use engine::{Charge, Charging, Cost, FailurePolicy, Role};
use tokio::task::JoinSet;

use super::*;
use crate::redis::script;

/// Duration of a call. The server then decides 128 requests a millisecond: 1,920 within a deadline.
const CALL: Duration = MS;

/// Sizes of the bursts. An idle server decides every burst in time.
const BURSTS: [usize; 3] = [300, 1_000, 1_700];

/// A server with calls of this duration.
fn calls_take(time: Duration) -> impl Fn(&[String]) -> Option<Reply> + Send + Sync + 'static {
    script_calls(move |call| Reply::After(time, Box::new(Reply::granted(call))))
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    decided: usize,
    overloaded: usize,
    failed: usize,
}

impl Tally {
    fn add(&mut self, answer: &Result<RequestReply, StoreError>) {
        match answer {
            Ok(_) => self.decided += 1,
            Err(StoreError::Overloaded) => self.overloaded += 1,
            Err(_) => self.failed += 1,
        }
    }
}

impl Case {
    async fn burst(&self, requests: usize) -> Tally {
        let mut tally = Tally::default();
        let answers = join_all((0..requests).map(|_| self.decide())).await;
        answers.iter().for_each(|answer| tally.add(answer));
        tally
    }

    /// Sends bursts of each size, with pauses without requests.
    async fn decides_bursts(&self) {
        for size in BURSTS {
            for pause in [300, 1_000] {
                let all = Tally { decided: size, ..Tally::default() };
                assert_eq!(self.burst(size).await, all, "a burst of {size}, {pause} ms before the next");
                sleep(pause * MS).await;
            }
        }
    }

    /// Sends the same number of requests in each of `times` milliseconds. Returns the tally, and how long each refused
    /// request waited.
    async fn steady(self: &Arc<Self>, per_ms: usize, times: usize) -> (Tally, Vec<Duration>) {
        let mut asked = JoinSet::new();
        for _ in 0..times {
            for _ in 0..per_ms {
                let case = Arc::clone(self);
                asked.spawn(async move {
                    let started = Instant::now();
                    (case.decide().await, started.elapsed())
                });
            }
            sleep(MS).await;
        }
        let (mut tally, mut waits) = (Tally::default(), Vec::new());
        while let Some(done) = asked.join_next().await {
            let (answer, waited) = done.expect("no request panics");
            if answer == Err(StoreError::Overloaded) {
                waits.push(waited);
            }
            tally.add(&answer);
        }
        (tally, waits)
    }
}

#[tokio::test(start_paused = true)]
async fn bursts_on_a_server_at_rest_are_decided() {
    let _server = server(calls_take(CALL));
    case(&options(), NoopObserver).decides_bursts().await;
}

#[tokio::test(start_paused = true)]
async fn bursts_after_an_overload_are_decided() {
    let _server = server(calls_take(CALL));
    let case = Arc::new(case(&options(), NoopObserver));
    case.steady(400, 100).await;
    assert!(case.burst(12_000).await.overloaded > 0, "the queue holds 8,192");
    sleep(300 * MS).await;
    case.decides_bursts().await;
}

#[tokio::test(start_paused = true)]
async fn bursts_after_a_slow_spell_are_decided() {
    let server = server(calls_take(6 * MS));
    let case = Arc::new(case(&options(), NoopObserver));
    let (tally, _) = case.steady(50, 500).await;
    assert!(tally.decided > 0 && tally.overloaded > 0, "{tally:?}");
    server.handle(calls_take(CALL));
    sleep(300 * MS).await;
    case.decides_bursts().await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_whose_first_calls_are_slow_is_decided() {
    let calls = AtomicUsize::new(0);
    // The second and third call are sent during the burst, when the system is busy.
    let server = deciding(move |call| {
        let is_slow = (1..3).contains(&calls.fetch_add(1, Ordering::Relaxed));
        Reply::After(if is_slow { 9 * MS } else { MS }, Box::new(Reply::granted(call)))
    });
    let case = case(&RedisOptions { connections: 2, ..options() }, NoopObserver);
    case.decide().await.expect("an answer");
    assert_eq!(case.burst(900).await, Tally { decided: 900, ..Tally::default() });
    assert_eq!(sizes(&server), [1, 128, 128, 128, 128, 128, 128, 128, 4]);
}

#[tokio::test(start_paused = true)]
async fn bursts_after_an_outage_are_decided() {
    let server = server(script_calls(|_| Reply::Silence));
    let case = Arc::new(case(&options(), NoopObserver));
    let (tally, _) = case.steady(400, 100).await;
    assert_eq!(tally.decided, 0);
    server.handle(calls_take(CALL));
    sleep(1_000 * MS).await;
    case.decides_bursts().await;
}

#[tokio::test(start_paused = true)]
async fn under_overload_the_server_decides_what_it_can_and_the_surplus_is_refused_at_once() {
    let _server = server(calls_take(CALL));
    let case = Arc::new(case(&options(), NoopObserver));
    let (tally, mut waits) = case.steady(256, 400).await;
    // The server decides 128 requests a millisecond, half of those sent.
    assert!(tally.decided >= 400 * 128 * 95 / 100, "{tally:?}");
    assert_eq!(tally.failed, 0);
    waits.sort_unstable();
    assert_eq!(waits[waits.len() / 2], Duration::ZERO, "the median of {} refusals", waits.len());
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_further_requests() {
    let _server = deciding(|_| Reply::Silence);
    let case = case(&RedisOptions { max_queue: 2, max_batch: 1, ..options() }, NoopObserver);
    let late = async {
        sleep(MS).await;
        join_all((0..3).map(|_| case.decide())).await
    };
    let (_, late) = tokio::join!(case.decide(), late);
    let overloaded = late.iter().filter(|answer| **answer == Err(StoreError::Overloaded)).count();
    assert_eq!(overloaded, 1, "one in flight, two in the queue: {late:?}");
}

fn undo_request() -> EncodedRequest {
    let charge = Charge {
        kernel: Kernel::FixedWindow(FixedWindow::new(5, 1_000_000)),
        cost: Cost::take(1),
        charging: Charging::Prepaid,
        role: Role::Enforce,
        on_store_failure: FailurePolicy::Error,
    };
    let granted = script::outcome(&charge, &[0, 1], 1).expect("the numbers of a fixed window");
    EncodedRequest::undo("key", &charge, &granted, "test:").expect("a recorded charge")
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_is_full_of_requests_has_room_for_undos() {
    let _server = deciding(|_| Reply::Silence);
    let case = case(&RedisOptions { max_queue: 2, max_batch: 1, ..options() }, NoopObserver);
    let late = async {
        sleep(MS).await;
        let requests = join_all((0..3).map(|_| case.decide()));
        let undo = || case.node.call(undo_request(), CallMode::Batched(None), Instant::now() + 15 * MS);
        tokio::join!(requests, join_all((0..3).map(|_| undo())))
    };
    let (_, (requests, undos)) = tokio::join!(case.decide(), late);
    assert_eq!(requests[2], Err(StoreError::Overloaded), "two requests wait");
    let refused: Vec<bool> =
        undos.iter().map(|undo| matches!(undo, Err(CallError::Failed(StoreError::Overloaded)))).collect();
    assert_eq!(refused, [false, false, true], "two undos more may wait");
}

/// Sends a request that waits 5 ms for a call of 6 ms, and then has 3 ms left. Returns the answer and the call sizes.
async fn hurried(max_batch: usize) -> (Result<RequestReply, StoreError>, Vec<usize>) {
    let server = deciding(|call| Reply::After(6 * MS, Box::new(Reply::granted(call))));
    let case = case(&RedisOptions { max_batch, ..options() }, NoopObserver);
    case.decide().await.expect("an answer");
    let hurried = async {
        sleep(MS).await;
        case.call(CallMode::Batched(None), 8 * MS).await
    };
    let (answer, hurried) = tokio::join!(case.decide(), hurried);
    answer.expect("an answer");
    (hurried.map_err(StoreError::from), sizes(&server))
}

#[tokio::test(start_paused = true)]
async fn a_request_with_less_time_left_than_a_call_takes_is_not_sent_while_batches_are_full() {
    assert_eq!(hurried(1).await, (Err(StoreError::Overloaded), vec![1, 1]));
}

#[tokio::test(start_paused = true)]
async fn every_request_is_sent_while_batches_have_room() {
    assert_eq!(hurried(2).await, (Err(StoreError::Timeout), vec![1, 1, 1]));
}
