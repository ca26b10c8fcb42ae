//! Waits for external processes, with a deadline. No test waits only for time to pass.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The longest time that a server needs to start, or to react to a change of its peer, on a slow and busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Between probes: at first short, because most servers start at once, then long, because a probe costs time of the
/// processor, which the other tests need.
const PAUSES: RangeInclusive<Duration> = Duration::from_millis(5)..=Duration::from_millis(60);

fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(*PAUSES.end())
}

/// Calls `probe` until it returns `Some`; returns `None` if `limit` is over before that.
#[expect(clippy::disallowed_methods, reason = "the deadline of an external process is on the real clock")]
pub fn until<T>(limit: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let (start, mut pause) = (Instant::now(), *PAUSES.start());
    loop {
        if let Some(found) = probe() {
            return Some(found);
        }
        if start.elapsed() >= limit {
            return None;
        }
        std::thread::sleep(pause);
        pause = longer(pause);
    }
}

/// Like [`until`], for an asynchronous probe.
#[expect(clippy::disallowed_methods, reason = "the deadline of an external process is on the real clock")]
pub async fn until_async<T>(limit: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let (start, mut pause) = (Instant::now(), *PAUSES.start());
    loop {
        if let Some(found) = probe().await {
            return Some(found);
        }
        if start.elapsed() >= limit {
            return None;
        }
        tokio::time::sleep(pause).await;
        pause = longer(pause);
    }
}

/// Calls `probe` until it is true. Fails the test if it is not true within [`PATIENCE`].
pub fn expect(what: &str, mut probe: impl FnMut() -> bool) {
    let seen = until(PATIENCE, || probe().then_some(()));
    assert!(seen.is_some(), "not within {PATIENCE:?}: {what}");
}

/// Sets the flag when it is dropped, so that a load also ends if its test fails.
pub struct EndAfter<'e>(pub &'e AtomicBool);

impl Drop for EndAfter<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Seconds since 1970 on the clock of the servers, to compare with the times in their answers.
#[expect(clippy::disallowed_methods, reason = "compared with answers of processes that read the real clock")]
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs()
}

#[test]
fn waiting_ends_with_the_result_of_the_probe_or_at_the_deadline() {
    let mut calls = 0;
    let third = until(PATIENCE, || {
        calls += 1;
        (calls == 3).then_some("third")
    });
    assert_eq!(third, Some("third"));
    assert_eq!(until(Duration::ZERO, || None::<()>), None);
}
