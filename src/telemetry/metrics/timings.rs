//! What goes to statsd by itself: the durations on their way there, and the count of what was lost.

use prometheus::IntCounter;
use tokio::sync::mpsc::{self, Receiver, Sender};

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
    lost: IntCounter,
}

/// The other end of the queue of durations.
#[derive(Debug)]
pub struct Timings {
    pub receiver: Receiver<Timing>,
    lost: IntCounter,
}

/// A queue of durations. `lost` counts those that find it full.
pub(super) fn timing_queue(lost: &IntCounter) -> (TimingQueue, Timings) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    (TimingQueue { sender, lost: lost.clone() }, Timings { receiver, lost: lost.clone() })
}

impl TimingQueue {
    pub(super) fn push(&self, timing: Timing) {
        if self.sender.try_send(timing).is_err() {
            self.lost.inc();
        }
    }
}

impl Timings {
    /// Counts lines that could not be sent.
    pub fn count_lost(&self, lines: u64) {
        self.lost.inc_by(lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_loses_durations_and_counts_them() {
        let lost = IntCounter::new("lost", "Lost").expect("a good name");
        let (queue, timings) = timing_queue(&lost);
        for took_ms in 0..CAPACITY as u64 + 3 {
            queue.push(Timing { method: "Check", took_ms });
        }
        assert_eq!((timings.receiver.len(), lost.get()), (CAPACITY, 3));
        timings.count_lost(4);
        assert_eq!(lost.get(), 7);
    }
}
