//! The durations on their way to statsd, which gets each of them by itself.

use std::sync::Arc;

use tokio::sync::mpsc::{self, Receiver, Sender};

use super::series::Count;

/// Durations that may wait. At 100,000 requests per second the queue is full after 80 ms.
const CAPACITY: usize = 8_192;

/// How long a call took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The gRPC method.
    pub method: &'static str,
    /// Whole milliseconds, cut off.
    pub took_ms: u64,
}

/// Takes durations and never waits: a full queue loses them. Clones share the queue.
#[derive(Clone, Debug)]
pub(super) struct TimingQueue {
    sender: Sender<Timing>,
    lost: Arc<Count>,
}

/// The other end of a `TimingQueue`.
#[derive(Debug)]
pub struct Timings {
    pub receiver: Receiver<Timing>,
    lost: Arc<Count>,
}

impl TimingQueue {
    pub(super) fn new() -> (Self, Timings) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        let lost = Arc::default();
        (Self { sender, lost: Arc::clone(&lost) }, Timings { receiver, lost })
    }

    pub(super) fn push(&self, timing: Timing) {
        if self.sender.try_send(timing).is_err() {
            self.lost.add(1);
        }
    }
}

impl Timings {
    /// The number of durations lost since the start.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.get()
    }
}
