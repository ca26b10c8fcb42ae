//! Goodput: how many requests a single-threaded server like Redis decides in time when it gets more than it can decide.

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::*;

const TIMEOUT: Duration = Duration::from_millis(1_500);
const BATCH: usize = 16;
/// Server time per call, in addition to its requests.
const CALL: Duration = Duration::from_millis(20);

/// Server time per request, and the minimum goodput under overload, in percent of the best goodput. A full batch takes
/// a twentieth, a seventh or a third of the timeout, and with two connections it waits for another batch.
const REQUESTS: [(Duration, usize); 3] =
    [(Duration::from_millis(4), 90), (Duration::from_millis(12), 90), (Duration::from_millis(30), 85)];

/// Load, in tenths of the server's throughput.
const TENTHS: [usize; 5] = [5, 10, 20, 30, 40];
/// Duration of the load, in timeouts.
const TIMEOUTS: usize = 8;
/// A burst starts once all requests of the one before are decided or refused.
const BURSTS_EVERY: Duration = Duration::from_millis(2_000);

#[derive(Clone, Copy, Debug)]
enum Pattern {
    Steady,
    /// All requests of one timeout arrive together.
    Bursts,
}

fn full_batch(request: Duration) -> Duration {
    CALL + request * u32::try_from(BATCH).expect("few")
}

/// Requests decided within one timeout.
fn capacity(request: Duration) -> usize {
    usize::try_from(TIMEOUT.as_millis()).expect("short") * BATCH
        / usize::try_from(full_batch(request).as_millis()).expect("short")
}

/// A server that executes one call after another, whatever their connections.
fn single_threaded(request: Duration) -> FakeServer {
    let free_at = Mutex::new(Instant::now());
    deciding(move |call| {
        let requests: u32 = call[2].parse().expect("the number of keys");
        let mut free_at = free_at.lock();
        let now = Instant::now();
        *free_at = (*free_at).max(now) + CALL + request * requests;
        Reply::After(*free_at - now, Box::new(Reply::granted(call)))
    })
}

/// Requests decided in time, in percent of what the server could decide.
async fn percent_decided(request: Duration, pattern: Pattern, tenths: usize) -> usize {
    let _server = single_threaded(request);
    let options = RedisOptions { timeout: TIMEOUT, max_batch: BATCH, connections: 2, ..options() };
    let case = Arc::new(case(&options, NoopObserver));
    let per_timeout = capacity(request) * tenths / 10;
    let (at_once, every, possible) = match pattern {
        Pattern::Steady => (1, TIMEOUT / u32::try_from(per_timeout).expect("few"), TIMEOUTS + 1),
        Pattern::Bursts => (per_timeout, BURSTS_EVERY, TIMEOUTS),
    };
    let (started, mut asked) = (Instant::now(), JoinSet::new());
    for n in 0..per_timeout * TIMEOUTS / at_once {
        sleep_until(started + every * u32::try_from(n).expect("few")).await;
        for _ in 0..at_once {
            let case = Arc::clone(&case);
            asked.spawn(async move { case.call(CallMode::Batched(None), TIMEOUT).await.is_ok() });
        }
    }
    let count = asked.len();
    let decided = asked.join_all().await.into_iter().filter(|is_decided| *is_decided).count();
    decided * 100 / count.min(capacity(request) * possible)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_asked_for_more_than_it_decides_decides_as_much_as_it_can() {
    for (request, least) in REQUESTS {
        for pattern in [Pattern::Steady, Pattern::Bursts] {
            let mut percents = Vec::new();
            for tenths in TENTHS {
                percents.push(percent_decided(request, pattern, tenths).await);
            }
            let what =
                format!("{pattern:?}, {request:?} for each request: {percents:?} % at {TENTHS:?} tenths");
            assert_eq!(percents[0], 100, "{what}");
            // Only whole batches of a burst are decided in time. The slowest server decides two of three.
            let least_of_all = if matches!(pattern, Pattern::Steady) { 80 } else { 60 };
            assert!(percents.iter().all(|percent| *percent >= least_of_all), "{what}");
            let most = percents[1..].iter().max().expect("some");
            assert!(percents[2..].iter().all(|percent| percent * 100 >= most * least), "{what}");
        }
    }
}
