//! Waiting for an external process, with a deadline. No test waits for time to pass.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a server may take to start, or to notice what happened to its peer, on a slow and busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

const BETWEEN_PROBES: Duration = Duration::from_millis(10);

/// Calls `probe` until it answers `Some`; `None` when `limit` has passed first.
#[expect(clippy::disallowed_methods, reason = "the deadline of an external process is on the real clock")]
pub fn until<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if start.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(BETWEEN_PROBES);
    }
}

/// As [`until`], for a probe that has to be awaited.
#[expect(clippy::disallowed_methods, reason = "the deadline of an external process is on the real clock")]
pub async fn until_async<T>(limit: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return Some(found);
        }
        if start.elapsed() >= limit {
            return None;
        }
        tokio::time::sleep(BETWEEN_PROBES).await;
    }
}

/// Calls `probe` until it is true, and fails the test when it is not within [`PATIENCE`].
pub fn expect(what: &str, mut probe: impl FnMut() -> bool) {
    let seen = until(PATIENCE, || probe().then_some(()));
    assert!(seen.is_some(), "not within {PATIENCE:?}: {what}");
}

/// Seconds since 1970 on the clock that the servers read, to compare with what they answer.
#[expect(clippy::disallowed_methods, reason = "compared with answers of processes that read the real clock")]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs()
}

#[test]
fn waiting_ends_with_the_answer_or_the_deadline() {
    let mut calls = 0;
    let third = until(PATIENCE, || {
        calls += 1;
        (calls == 3).then_some("third")
    });
    assert_eq!(third, Some("third"));
    assert_eq!(until(Duration::ZERO, || None::<()>), None);
}
