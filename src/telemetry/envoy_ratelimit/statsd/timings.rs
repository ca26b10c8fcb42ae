//! The queue of call durations for statsd, and the count of lost lines.

use prometheus::IntCounter;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Durations that can wait. At 100,000 requests per second the queue is full after 80 ms.
const CAPACITY: usize = 8_192;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    pub method: &'static str,
    /// Whole milliseconds, truncated.
    pub took_ms: u64,
}

/// Queues durations without waiting: a full queue drops them. Clones share the queue.
#[derive(Clone, Debug)]
pub struct TimingQueue {
    sender: Sender<Timing>,
    pub(crate) lost: IntCounter,
}

/// Receiving end of the queue.
#[derive(Debug)]
pub struct Timings {
    pub receiver: Receiver<Timing>,
    lost: IntCounter,
}

/// Returns both ends of a queue.
pub fn timing_queue() -> (TimingQueue, Timings) {
    let (lost, (sender, receiver)) = (lost_lines(), mpsc::channel(CAPACITY));
    (TimingQueue { sender, lost: lost.clone() }, Timings { receiver, lost })
}

/// Counts what does not reach statsd.
pub(crate) fn lost_lines() -> IntCounter {
    let counter = IntCounter::new(
        "ratelimitd_statsd_lost_lines_total",
        "Lines for statsd not sent: it is unreachable or too slow",
    );
    counter.expect("the name and the help are constants")
}

impl TimingQueue {
    pub(crate) fn push(&self, timing: Timing) {
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
        let (queue, timings) = timing_queue();
        for took_ms in 0..CAPACITY as u64 + 3 {
            queue.push(Timing { method: "Check", took_ms });
        }
        assert_eq!((timings.receiver.len(), queue.lost.get()), (CAPACITY, 3));
        timings.count_lost(4);
        assert_eq!(queue.lost.get(), 7);
    }
}
