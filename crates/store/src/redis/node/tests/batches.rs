//! Which requests are sent in one call.

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::oneshot::channel;
use tokio::task::{JoinSet, yield_now};

use super::*;

/// More requests than ever wait when a call is sent.
const STREAM: usize = 10_000;

#[tokio::test(start_paused = true)]
async fn requests_of_tasks_that_are_ready_together_share_a_call() {
    let server = deciding(Reply::granted);
    let case = Arc::new(case(&options(), NoopObserver));
    case.decide().await.expect("an answer");
    // Each task wakes the next one, like reads from one socket after another.
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

/// Adds one request each time before the batcher runs, until it sends a call. Returns the number of requests in that
/// call.
async fn size_of_call_in_a_stream(case: &Case, sizes: &Sizes, request: impl Fn() -> EncodedRequest) -> usize {
    let (mut asked, mut requests, calls) = (FuturesUnordered::new(), 0, sizes.all().len());
    while sizes.all().len() == calls {
        assert!(requests < STREAM, "no call is sent");
        asked.push(case.node.call(request(), CallMode::Batched(None), Instant::now() + 15 * MS));
        requests += 1;
        if let Some(answer) = asked.next().now_or_never().flatten() {
            answer.expect("an answer");
        }
        yield_now().await;
    }
    let sent = sizes.all()[calls];
    while let Some(answer) = asked.next().await {
        answer.expect("an answer");
    }
    sent
}

#[derive(Clone, Debug, Default)]
struct Sizes(Arc<Mutex<Vec<usize>>>);

impl Sizes {
    fn all(&self) -> Vec<usize> {
        self.0.lock().clone()
    }
}

impl Observer for Sizes {
    fn batch(&self, requests: usize) {
        self.0.lock().push(requests);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_requests_without_end_does_not_delay_a_call() {
    deciding(Reply::granted);
    let sizes = Sizes::default();
    let case = case(&RedisOptions { max_queue: STREAM, ..options() }, sizes.clone());
    case.decide().await.expect("an answer");
    let size = size_of_call_in_a_stream(&case, &sizes, || probe_request("test:", None)).await;
    assert!((64..128).contains(&size), "{size} requests");
}

/// A server that takes this long for a call whose requests all use one counter. The reply is for the number of requests
/// sent last.
fn deciding_hot_counter(sizes: &Sizes, after: Duration) -> FakeServer {
    let sizes = sizes.clone();
    deciding(move |call| {
        let reply = match sizes.all().last() {
            // All requests of a call for one counter form a run: their number, the window, its first use.
            Some(&requests) if requests > 1 && call[2] == "1" => {
                Reply::Array([1, requests as i64, 0, 1].map(Reply::Int).into())
            }
            _ => Reply::granted(call),
        };
        Reply::After(after, Box::new(reply))
    })
}

#[tokio::test(start_paused = true)]
async fn a_call_has_more_requests_if_their_counter_is_hot() {
    let sizes = Sizes::default();
    let _server = deciding_hot_counter(&sizes, Duration::ZERO);
    let case = case(&RedisOptions { max_queue: STREAM, max_batch: 1_024, ..options() }, sizes.clone());
    let request = probe_request("test:", None);
    let first = size_of_call_in_a_stream(&case, &sizes, || request.clone()).await;
    assert!(first < 128, "{first} requests, before the counter is known to be hot");
    let size = size_of_call_in_a_stream(&case, &sizes, || request.clone()).await;
    assert!((128..256).contains(&size), "{size} requests for one counter");
    // The batch is too small to tell whether the counter is hot.
    case.decide().await.expect("an answer");
    let size = size_of_call_in_a_stream(&case, &sizes, || request.clone()).await;
    assert!((128..256).contains(&size), "{size} requests for one counter, after a small batch");
    size_of_call_in_a_stream(&case, &sizes, || probe_request("test:", None)).await;
    let size = size_of_call_in_a_stream(&case, &sizes, || probe_request("test:", None)).await;
    assert!(size < 128, "{size} requests for as many counters");
}

#[tokio::test(start_paused = true)]
async fn nothing_is_refused_because_batches_for_a_hot_counter_are_full() {
    let sizes = Sizes::default();
    let _server = deciding_hot_counter(&sizes, MS);
    let case = case(&options(), sizes.clone());
    let request = probe_request("test:", None);
    let call = || case.node.call(request.clone(), CallMode::Batched(None), Instant::now() + 15 * MS);
    let until = Instant::now() + 60 * MS;
    let always = join_all((0..256).map(async |_| {
        while Instant::now() < until {
            call().await.expect("two batches are decided in time");
        }
    }));
    let more = async {
        sleep(40 * MS).await;
        assert!(sizes.all().iter().rev().take(20).all(|size| *size == 128), "{:?}", sizes.all());
        for answer in join_all((0..700).map(|_| call())).await {
            answer.expect("eight batches are decided in time");
        }
    };
    tokio::join!(always, more);
}
