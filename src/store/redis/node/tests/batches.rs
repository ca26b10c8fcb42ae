//! Which requests travel in one call.

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::oneshot::channel;
use tokio::task::{JoinSet, yield_now};

use super::*;

/// Far more than wait when a call is sent.
const STREAM: usize = 10_000;

#[tokio::test(start_paused = true)]
async fn requests_of_tasks_that_are_ready_together_share_a_call() {
    let server = deciding(Reply::granted);
    let case = Arc::new(case(&options(), NoopObserver));
    case.decide().await.expect("an answer");
    // Each task makes the next one ready, as one read from a socket after another does.
    let mut asked = JoinSet::new();
    let (first, mut ready) = channel();
    for _ in 0..40 {
        let (then, next) = channel();
        let (case, turn) = (Arc::clone(&case), std::mem::replace(&mut ready, next));
        asked.spawn(async move {
            turn.await.expect("the task before it runs");
            then.send(()).expect("the next task waits, and after the last one the test");
            case.decide().await.expect("an answer");
        });
    }
    yield_now().await;
    first.send(()).expect("the first task waits");
    asked.join_all().await;
    ready.await.expect("the last task ran");
    assert_eq!(sizes(&server), [1, 40]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_requests_without_end_does_not_delay_a_call() {
    let server = deciding(Reply::granted);
    let case = case(&RedisOptions { max_queue: STREAM, ..options() }, NoopObserver);
    case.decide().await.expect("an answer");
    // A request more each time before the batcher runs.
    let (mut asked, mut requests) = (FuturesUnordered::new(), 0);
    while sizes(&server).len() == 1 {
        assert!(requests < STREAM, "no call is sent");
        asked.push(case.decide());
        requests += 1;
        if let Some(answer) = asked.next().now_or_never().flatten() {
            answer.expect("an answer");
        }
        yield_now().await;
    }
    let sent = sizes(&server)[1];
    assert!((64..=128).contains(&sent), "{sent} requests");
    while let Some(answer) = asked.next().await {
        answer.expect("an answer");
    }
}
