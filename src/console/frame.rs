//! What open streams get: one event a second, built once for all of them. A slow reader misses seconds; the next state
//! includes them.

use std::sync::Arc;

use base::escaped_json;
use serde::Serialize;
use tokio::sync::watch;

/// Formats an event as `text/event-stream`.
pub(super) fn frame(event: &str, id: &str, data: &impl Serialize) -> Arc<str> {
    format!("event: {event}\nid: {id}\ndata: {}\n\n", json_text(data)).into()
}

/// Formats JSON for people and programs, without characters that harm a terminal.
pub(super) fn json_text(data: &impl Serialize) -> String {
    escaped_json(serde_json::to_string(data).expect("texts and numbers under names"))
}

#[derive(Debug)]
pub struct Frames {
    first: Option<Arc<str>>,
    later: watch::Receiver<Arc<str>>,
}

impl Frames {
    pub(super) fn new(first: Arc<str>, later: watch::Receiver<Arc<str>>) -> Self {
        Self { first: Some(first), later }
    }

    /// Returns the next event: the state at first, then one per second. `None` at the end.
    pub async fn next(&mut self) -> Option<Arc<str>> {
        if let Some(first) = self.first.take() {
            return Some(first);
        }
        self.later.changed().await.ok()?;
        Some(Arc::clone(&self.later.borrow_and_update()))
    }
}

/// The last event of a stream.
pub const LAST_FRAME: &str = "event: end\ndata: {\"reason\":\"the process stops\"}\n\n";
