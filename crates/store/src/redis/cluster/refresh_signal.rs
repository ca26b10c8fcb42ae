//! Decides when to refresh the slot map.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::redis::address::Address;

/// How long the slot map is polled after the last refresh request, because a failover takes time.
const POLL_FOR: Duration = Duration::from_secs(30);
/// Interval between these polls.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Interval between the other polls: without calls, nothing else reports a failover.
const IDLE_INTERVAL: Duration = Duration::from_secs(10);

/// Refresh requests, made by calls that got an error or a redirect.
#[derive(Default)]
pub(super) struct RefreshSignal {
    requested: Notify,
    state: Mutex<SignalState>,
}

#[derive(Default)]
struct SignalState {
    last_request: Option<Instant>,
    /// Nodes that failed since the last refresh.
    failed_nodes: Vec<Address>,
}

impl RefreshSignal {
    /// Requests a refresh because the slot map may have changed.
    pub(super) fn request(&self) {
        self.state.lock().last_request = Some(Instant::now());
        self.requested.notify_one();
    }

    /// Requests a refresh because a node failed. The refresh asks the other nodes first.
    pub(super) fn request_after_failure(&self, failed: &Address) {
        let mut state = self.state.lock();
        if !state.failed_nodes.contains(failed) {
            state.failed_nodes.push(failed.clone());
        }
        drop(state);
        self.request();
    }

    pub(super) fn take_failed_nodes(&self) -> Vec<Address> {
        std::mem::take(&mut self.state.lock().failed_nodes)
    }

    /// Waits for a request or the next poll. Returns `true` for a request.
    pub(super) async fn next(&self) -> bool {
        let is_recent = self.state.lock().last_request.is_some_and(|last| last.elapsed() < POLL_FOR);
        let interval = if is_recent { POLL_INTERVAL } else { IDLE_INTERVAL };
        timeout(jittered(interval), self.requested.notified()).await.is_ok()
    }
}

/// Varies the interval by a quarter, so that processes that lost the same node do not refresh in step.
pub(super) fn jittered(interval: Duration) -> Duration {
    interval * fastrand::u32(75..=125) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_slot_map_is_polled_and_more_often_after_a_request() {
        let signal = RefreshSignal::default();
        signal.request();
        assert!(signal.next().await, "the request itself");
        let requested = Instant::now();
        let mut polls = 0;
        while requested.elapsed() < POLL_FOR {
            assert!(!signal.next().await, "a poll");
            polls += 1;
        }
        assert!((12..=20).contains(&polls), "{polls} polls of about 2 s in 30 s");
        let rare = Instant::now();
        assert!(!signal.next().await, "a poll without requests");
        assert!(rare.elapsed() > 3 * POLL_INTERVAL, "{:?}", rare.elapsed());
        signal.request();
        assert!(signal.next().await);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_before_a_refresh_are_one_request() {
        let signal = RefreshSignal::default();
        let node = |port| Address { host: "a".to_owned(), port };
        for port in [1, 2, 1] {
            signal.request_after_failure(&node(port));
        }
        assert!(signal.next().await);
        assert!(!signal.next().await, "one request, then polls");
        assert_eq!(signal.take_failed_nodes(), [node(1), node(2)]);
        assert_eq!(signal.take_failed_nodes(), []);
    }
}
