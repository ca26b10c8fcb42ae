//! A server whose calls vary in duration, at a few percent of its throughput. Every request is sent, so a request fails
//! only if its answer is late.
//!
//! All times are a hundred times those of a real Redis, because the test clock counts whole milliseconds.

use tokio::task::JoinSet;
use tokio::time::sleep_until;

use super::*;

/// A second of a real Redis, in test milliseconds.
const SECOND_MS: u64 = 100_000;
const TIMEOUT: Duration = Duration::from_millis(1_500);
/// With this timeout every request is decided, and its wait shows whether it would be late.
const PATIENT: Duration = Duration::from_secs(10_000);
const REQUESTS: u64 = 3_000;

/// Call durations, in test milliseconds.
#[derive(Clone, Copy, Debug)]
enum Calls {
    Between(u64, u64),
    /// The same, but one call in ten takes the third duration.
    OneInTen(u64, u64, u64),
}

/// Kinds of calls, and requests per second of a real Redis.
const LOADS: [(Calls, u64); 6] = [
    (Calls::Between(200, 900), 1_500),
    (Calls::Between(0, 900), 1_500),
    (Calls::Between(100, 1_000), 1_500),
    (Calls::Between(50, 1_200), 1_500),
    (Calls::Between(200, 900), 600),
    (Calls::OneInTen(100, 200, 1_200), 3_000),
];

impl Calls {
    /// Requests that two connections decide per second of a real Redis, with calls of 128 requests.
    fn capacity(self) -> u64 {
        let mean = match self {
            Self::Between(least, most) => (least + most) / 2,
            Self::OneInTen(least, most, long) => (9 * (least + most) / 2 + long) / 10,
        };
        2 * 128 * SECOND_MS / mean
    }

    fn server(self) -> FakeServer {
        let random = Mutex::new(fastrand::Rng::with_seed(7));
        deciding(move |call| {
            let mut random = random.lock();
            let took = match self {
                Self::OneInTen(_, _, long) if random.u8(0..10) == 0 => long,
                Self::Between(least, most) | Self::OneInTen(least, most, _) => random.u64(least..=most),
            };
            Reply::After(Duration::from_millis(took), Box::new(Reply::granted(call)))
        })
    }
}

/// Requests at an even rate.
#[derive(Clone, Copy, Debug)]
struct Load {
    connections: u32,
    /// Per second of a real Redis.
    per_second: u64,
    requests: u64,
    /// Size of a burst, ten timeouts before the first counted request.
    burst: usize,
}

impl Load {
    /// How long each request waited for its answer; `None` if it failed.
    async fn waits(self, timeout: Duration) -> Vec<Option<Duration>> {
        let Self { connections, per_second, requests, burst } = self;
        let case = Arc::new(case(&RedisOptions { connections, timeout, ..options() }, NoopObserver));
        let ask = move || {
            let case = Arc::clone(&case);
            async move {
                let asked = Instant::now();
                let answer = case.call(CallMode::Batched(None), timeout).await;
                answer.ok().map(|_| asked.elapsed())
            }
        };
        let mut uncounted = JoinSet::new();
        (0..burst).for_each(|_| drop(uncounted.spawn(ask())));
        let (started, mut counted) = (Instant::now(), JoinSet::new());
        let before = if burst > 0 { TIMEOUT * 10 } else { Duration::ZERO };
        for n in 0.. {
            let due = Duration::from_millis(n * SECOND_MS / per_second);
            sleep_until(started + due).await;
            match counted.len() as u64 {
                _ if due < before => drop(uncounted.spawn(ask())),
                asked if asked < requests => drop(counted.spawn(ask())),
                _ => break,
            }
        }
        counted.join_all().await
    }

    /// Returns how many requests fail, and how many would be late if no request had a deadline.
    async fn failed_and_late(self, server: impl Fn() -> FakeServer) -> (usize, usize) {
        let run = async |timeout| {
            let _server = server();
            self.waits(timeout).await
        };
        let failed = run(TIMEOUT).await.iter().filter(|wait| wait.is_none()).count();
        let patient = run(PATIENT).await;
        assert!(patient.iter().all(Option::is_some), "{self:?}: each request has time");
        (failed, patient.iter().flatten().filter(|wait| **wait > TIMEOUT).count())
    }

    /// Checks that no more requests fail than would be late.
    async fn fails_late_requests_only(self, what: &str, server: impl Fn() -> FakeServer) {
        let (failed, late) = self.failed_and_late(server).await;
        assert!(failed <= late, "{what}, {self:?}: {failed} failed, {late} would be late");
    }
}

#[tokio::test(start_paused = true)]
async fn at_a_light_load_only_requests_fail_whose_answers_are_late() {
    for (calls, per_second) in LOADS {
        let loads =
            [(1, per_second), (2, per_second), (2, calls.capacity() / 100), (2, calls.capacity() / 10)];
        for (connections, per_second) in loads {
            let load = Load { connections, per_second, requests: REQUESTS, burst: 0 };
            load.fails_late_requests_only(&format!("{calls:?}"), || calls.server()).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_a_light_load_after_a_burst_only_requests_fail_whose_answers_are_late() {
    for (calls, per_second) in LOADS {
        let load = Load { connections: 1, per_second, requests: REQUESTS, burst: 1_000 };
        load.fails_late_requests_only(&format!("{calls:?}"), || calls.server()).await;
    }
}

/// A server that answers within a fifth of a real Redis millisecond, but stalls once for 22 ms.
fn stalling() -> FakeServer {
    let started = Instant::now();
    deciding(move |call| {
        let (begins, ends) = (Duration::from_millis(10_000), Duration::from_millis(12_200));
        let at = started.elapsed();
        let stall = if at < begins { Duration::ZERO } else { ends.saturating_sub(at) };
        Reply::After(stall + 20 * MS, Box::new(Reply::granted(call)))
    })
}

#[tokio::test(start_paused = true)]
async fn a_stall_fails_only_requests_whose_answers_are_late() {
    for connections in [1, 2, 4] {
        for per_second in [2_500, 10_000, 20_000] {
            let load = Load { connections, per_second, requests: per_second / 5, burst: 0 };
            load.fails_late_requests_only("a stall", stalling).await;
        }
    }
}
