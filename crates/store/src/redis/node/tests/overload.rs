//! A node with more requests than its server can decide: how much of the server's work reaches callers in time?

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Duration of a call, which decides [`BATCH`] requests: 120 within a timeout.
const CALL: Duration = Duration::from_millis(10);
const BATCH: usize = 8;
const TIMEOUT: Duration = Duration::from_millis(150);
const DECIDED_WITHIN_A_TIMEOUT: usize = 120;

/// Requests per caller, sent one after another.
const TIMES: usize = 20;

/// A server that counts the requests it decides.
fn counting() -> (FakeServer, Arc<AtomicUsize>) {
    let decided = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&decided);
    let server = deciding(move |call| {
        count.fetch_add(call[2].parse().expect("the number of keys"), Ordering::Relaxed);
        Reply::After(CALL, Box::new(Reply::granted(call)))
    });
    (server, decided)
}

/// Callers that send the next request after an answer. After a refusal they wait as long as an answer would have taken.
#[derive(Debug, Default)]
struct Callers {
    decided: usize,
    refused: usize,
    late: usize,
    /// Longest wait for a refusal.
    slowest_refusal: Duration,
}

impl Callers {
    async fn ask(case: &Case, callers: usize) -> Self {
        let tally = Mutex::new(Self::default());
        let caller = async || {
            for _ in 0..TIMES {
                let asked = Instant::now();
                let answer: Result<RequestReply, StoreError> =
                    case.call(CallMode::Batched(None), TIMEOUT).await.map_err(Into::into);
                let refused = answer == Err(StoreError::Overloaded);
                tally.lock().add(&answer, asked.elapsed());
                if refused {
                    sleep(CALL).await;
                }
            }
        };
        join_all((0..callers).map(|_| caller())).await;
        tally.into_inner()
    }

    fn add(&mut self, answer: &Result<RequestReply, StoreError>, waited: Duration) {
        match answer {
            Ok(_) => self.decided += 1,
            Err(StoreError::Overloaded) => {
                self.refused += 1;
                self.slowest_refusal = self.slowest_refusal.max(waited);
            }
            Err(StoreError::Timeout) => self.late += 1,
            Err(other) => panic!("an overload is no outage: {other}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_server_decides_reaches_callers_in_time_however_many_ask() {
    // Half as many callers as the server can answer within a timeout, three times as many, and ten times as many.
    for callers in [60, 360, 1_200] {
        let (_server, decided_by_server) = counting();
        let case = case(&RedisOptions { timeout: TIMEOUT, max_batch: BATCH, ..options() }, NoopObserver);
        let started = Instant::now();
        let tally = Callers::ask(&case, callers).await;
        let calls = usize::try_from(started.elapsed().as_millis() / CALL.as_millis()).expect("few");
        let decided_by_server = decided_by_server.load(Ordering::Relaxed);
        assert_eq!((tally.decided, tally.late), (decided_by_server, 0), "{callers} callers: {tally:?}");
        assert_eq!(tally.decided + tally.refused, callers * TIMES, "{callers} callers");
        assert!(tally.slowest_refusal < TIMEOUT, "{callers} callers: {tally:?}");
        // The server is busy until the last caller has ended.
        assert!(tally.decided * 20 >= calls * BATCH * 19, "{callers} callers, {calls} calls: {tally:?}");
        assert_eq!(tally.refused > 0, callers > DECIDED_WITHIN_A_TIMEOUT, "{callers} callers: {tally:?}");
    }
}
