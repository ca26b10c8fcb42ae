//! An optional wait before a batch is sent, `store.redis.linger`: requests that arrive meanwhile share the call. A
//! batcher waits only while requests come often enough for another one to arrive within the wait, and only if
//! the requests in the queue have time for it. So an idle service never waits.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A batcher waits only if the oldest request in the queue has at least this many times the wait left.
const LEAST_WAITS_LEFT: u32 = 8;
/// A batcher does not wait with this many requests: one more would save little.
const ENOUGH_TO_LINGER: usize = 16;

/// The wait of the batchers of one node.
#[derive(Debug)]
pub(super) struct Linger {
    /// Zero: never.
    wait: Duration,
    arrivals: Mutex<Arrivals>,
}

/// How often requests arrive.
#[derive(Debug)]
struct Arrivals {
    last_batch: Option<Instant>,
    /// The time from one request to the next: a moving average, in which a new batch has the weight 1/8.
    gap: Duration,
}

impl Linger {
    pub(super) fn new(wait: Duration) -> Self {
        Self { wait, arrivals: Mutex::new(Arrivals { last_batch: None, gap: Duration::MAX }) }
    }

    pub(super) fn is_set(&self) -> bool {
        !self.wait.is_zero()
    }

    /// How long to wait before a batch of `waiting` requests is sent, the first of which ends at `deadline`; `None`:
    /// send at once.
    pub(super) fn wait(&self, now: Instant, waiting: usize, deadline: Option<Instant>) -> Option<Duration> {
        if waiting >= ENOUGH_TO_LINGER {
            return None;
        }
        let has_time = deadline? - now >= self.wait * LEAST_WAITS_LEFT;
        (has_time && self.arrivals.lock().gap <= self.wait).then_some(self.wait)
    }

    /// Records that a batch of this many requests, at least 1, is sent.
    pub(super) fn record_batch(&self, now: Instant, requests: usize) {
        let Ok(requests) = u32::try_from(requests) else { return };
        let mut arrivals = self.arrivals.lock();
        let gap = arrivals.last_batch.replace(now).map_or(Duration::MAX, |last| (now - last) / requests);
        // A pause counts in full: the next batch of a service that was idle does not wait.
        arrivals.gap = if gap > self.wait { gap } else { arrivals.gap.min(self.wait * 8) / 8 * 7 + gap / 8 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_micros(100);
    const TIMEOUT: Duration = Duration::from_millis(15);

    /// Whether a batcher waits after batches of one request with these pauses between them, in microseconds.
    fn waits_after(wait: Duration, pauses: &[u64]) -> bool {
        let linger = Linger::new(wait);
        let mut now = Instant::now();
        linger.record_batch(now, 1);
        for pause in pauses {
            now += Duration::from_micros(*pause);
            linger.record_batch(now, 1);
        }
        linger.wait(now, 1, Some(now + TIMEOUT)).is_some()
    }

    #[test]
    fn a_batcher_waits_only_while_requests_come_often() {
        assert!(!waits_after(WAIT, &[]), "the first request");
        assert!(!waits_after(WAIT, &[200; 50]), "the next request is likely to come later");
        assert!(waits_after(WAIT, &[20; 50]));
        let mut pause = vec![20; 50];
        pause.push(1_000_000);
        assert!(!waits_after(WAIT, &pause), "the service was idle");
        pause.extend([20; 50]);
        assert!(waits_after(WAIT, &pause), "it is not idle any more");
        assert!(!waits_after(Duration::ZERO, &[20; 50]), "no wait is set");
    }

    #[test]
    fn a_batcher_does_not_wait_near_a_deadline_or_with_a_large_batch() {
        let (linger, now) = (Linger::new(WAIT), Instant::now());
        for number in 0..50 {
            linger.record_batch(now + number * WAIT / 5, 1);
        }
        assert_eq!(linger.wait(now, 1, Some(now + 8 * WAIT)), Some(WAIT));
        assert_eq!(linger.wait(now, 1, Some(now + 7 * WAIT)), None);
        assert_eq!(linger.wait(now, ENOUGH_TO_LINGER, Some(now + TIMEOUT)), None);
        assert_eq!(linger.wait(now, 0, None), None, "the queue is empty");
    }
}
