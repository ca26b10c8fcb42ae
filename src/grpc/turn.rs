//! Connections of one worker take turns, so that the calls of one do not delay those of the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// In one turn a connection reads this many bytes, some 30 requests. Without turns, all calls that a client has sent at
/// once start before a call of another client.
const TURN_BYTES: usize = 2 * 1024;

/// The bytes that a connection may still read before the tasks of other connections run. Clones share them.
///
/// A turn is one poll of the connection's task: h2 reads again for each call that it accepts, so a read that is
/// pending once would not end the turn.
#[derive(Clone, Debug)]
pub(super) struct Turn(Arc<AtomicUsize>);

impl Default for Turn {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(TURN_BYTES)))
    }
}

impl Turn {
    pub(super) fn begin(&self) {
        self.0.store(TURN_BYTES, Ordering::Relaxed);
    }

    pub(super) fn bytes_left(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn record_read(&self, bytes: usize) {
        self.0.store(self.bytes_left().saturating_sub(bytes), Ordering::Relaxed);
    }
}
