//! Limits the log lines about an event that a client can repeat at will: one line at once, then at most one a minute. A
//! warning of the HTTP/2 library is such a line: a client causes one with a frame that costs it nothing. Lines below a
//! warning are for debugging, and all of them are written.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use store::clock::monotonic;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The shortest time between two lines.
const INTERVAL: Duration = Duration::from_secs(60);

/// Counts the events of one kind and says when to log them.
#[derive(Debug, Default)]
pub struct LogThrottle(Mutex<ThrottleState>);

#[derive(Debug, Default)]
struct ThrottleState {
    last_line: Option<Instant>,
    /// The events since the last line.
    events: u64,
}

impl LogThrottle {
    /// Counts an event. Returns the number of events since the last line, this one included, if a line is due.
    pub fn count(&self) -> Option<u64> {
        self.add(1)
    }

    /// As [`count`](Self::count), of several events.
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

/// The start of the targets of the lines of the HTTP/2 library.
const LIBRARY: &str = "h2::";

/// A layer that leaves out warnings of the HTTP/2 library.
#[derive(Debug, Default)]
pub(super) struct LibraryLines(LogThrottle);

impl<S: Subscriber> Layer<S> for LibraryLines {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let (level, target) = (event.metadata().level(), event.metadata().target());
        if *level > Level::WARN || !target.starts_with(LIBRARY) {
            return true;
        }
        let Some(events) = self.0.count() else {
            return false;
        };
        if events > 1 {
            let omitted = events - 1;
            tracing::warn!(omitted, "warnings of the HTTP/2 library were not written in the minutes before");
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn the_first_event_is_logged_at_once_and_the_others_once_a_minute() {
        let throttle = LogThrottle::default();
        let start = monotonic();
        // (seconds after the start, events in the line)
        let table = [(0, Some(1)), (1, None), (59, None), (60, Some(3)), (61, None), (200, Some(2))];
        for (seconds, line) in table {
            assert_eq!(throttle.add_at(1, start + Duration::from_secs(seconds)), line, "after {seconds} s");
        }
    }

    /// Counts the lines that are written.
    #[derive(Clone, Default)]
    struct WrittenLines(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for WrittenLines {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn warnings_of_the_library_are_written_once_a_minute_and_all_other_lines_always() {
        let written = WrittenLines::default();
        let subscriber = tracing_subscriber::registry().with(written.clone()).with(LibraryLines::default());
        tracing::subscriber::with_default(subscriber, || {
            for (lines, expected) in [
                ((|| tracing::warn!(target: "h2::proto::ping_pong", "from a client")) as fn(), 1),
                (|| tracing::error!(target: "h2::proto::streams", "from a client"), 0),
                (|| tracing::debug!(target: "h2::proto::streams", "for debugging"), 100),
                (|| tracing::warn!(target: "h2x", "another library"), 100),
                (|| tracing::warn!("ours"), 100),
            ] {
                let before = written.0.load(Ordering::Relaxed);
                (0..100).for_each(|_| lines());
                assert_eq!(written.0.load(Ordering::Relaxed) - before, expected);
            }
        });
    }
}
