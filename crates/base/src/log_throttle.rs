//! Throttles log lines about events that a client can repeat at will: the first line immediately, then at most one a
//! minute.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::clock::monotonic;

const INTERVAL: Duration = Duration::from_secs(60);

/// Counts the events of one kind and says when to log them.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<ThrottleState>);

#[derive(Debug, Default)]
struct ThrottleState {
    last_line: Option<Instant>,
    events: u64,
}

impl LogThrottle {
    /// Counts an event. Returns the number of events since the last line, including this one, if a line is due.
    pub fn count(&self) -> Option<u64> {
        self.add(1)
    }

    /// Like [`count`](Self::count), for several events.
    pub fn add(&self, events: u64) -> Option<u64> {
        self.add_at(events, monotonic())
    }

    fn add_at(&self, events: u64, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        state.events = state.events.saturating_add(events);
        if state.last_line.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            return None;
        }
        state.last_line = Some(now);
        Some(std::mem::take(&mut state.events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_is_logged_at_once_and_the_others_once_a_minute() {
        let throttle = LogThrottle::default();
        let start = monotonic();
        // (seconds since `start`, events in the line)
        let table = [(0, Some(1)), (1, None), (59, None), (60, Some(3)), (61, None), (200, Some(2))];
        for (seconds, line) in table {
            assert_eq!(throttle.add_at(1, start + Duration::from_secs(seconds)), line, "after {seconds} s");
        }
    }
}
