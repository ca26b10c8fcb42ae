//! Warnings of the HTTP/2 library: a client causes one with a frame that costs it nothing, so only one line a minute is
//! written. Lines below a warning are for debugging, and all of them are written.

use store::log_throttle::LogThrottle;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The targets of the library's lines start so.
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

    /// Counts the lines that are written.
    #[derive(Clone, Default)]
    struct Written(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Written {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn warnings_of_the_library_are_written_once_a_minute_and_all_other_lines_always() {
        let written = Written::default();
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
