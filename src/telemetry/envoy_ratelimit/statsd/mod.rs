//! Sends the metrics of envoyproxy/ratelimit to statsd or DogStatsD: counters and gauges at an interval, durations as
//! soon as possible. Whatever cannot be sent in time is lost and counted; no request waits for it.

mod connection;
mod lines;
mod options;
mod timings;

use std::collections::BTreeMap;
use std::time::Duration;

use base::log_throttle::LogThrottle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::telemetry::envoy_ratelimit::{Stat, StatKind};
use crate::telemetry::metrics::Metrics;
use connection::Connection;
use lines::{Lines, Packet};

pub use options::{Mogrifier, Mogrifiers, StatsdFormat, StatsdOptions, StatsdTarget};
pub(crate) use timings::{Timing, lost_lines};
pub use timings::{TimingQueue, Timings, timing_queue};

/// Maximum durations sent together.
const TIMINGS_AT_ONCE: usize = 8_192;
/// How long a duration waits for more. Otherwise every call would wake the sending thread.
const GATHER_FOR: Duration = Duration::from_millis(10);
/// Time limit for the packets of one flush. A longer one would lose durations from the queue.
const SEND_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Statsd {
    metrics: Metrics,
    timings: Timings,
    flush_interval: Duration,
    lines: Lines,
    connection: Connection,
    /// Counters as last sent, by name. Different paths can have one name: they are summed.
    sent: BTreeMap<String, u64>,
    throttle: LogThrottle,
}

impl Statsd {
    pub fn new(options: StatsdOptions, metrics: Metrics, timings: Timings) -> Self {
        let StatsdOptions { target, format, flush_interval, tags, mogrifiers } = options;
        Self {
            metrics,
            timings,
            flush_interval,
            lines: Lines::new(format, &tags, mogrifiers),
            connection: Connection::new(target),
            sent: BTreeMap::new(),
            throttle: LogThrottle::default(),
        }
    }

    /// Sends until `stop`, then once more.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut flushes = interval_at(Instant::now() + self.flush_interval, self.flush_interval);
        flushes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut timings = Vec::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = flushes.tick() => self.write_stats(),
                _ = self.timings.receiver.recv_many(&mut timings, TIMINGS_AT_ONCE) => {
                    stop.run_until_cancelled(sleep(GATHER_FOR)).await;
                    self.write_timings(&mut timings);
                }
            }
            self.send().await;
        }
        self.write_timings(&mut timings);
        self.write_stats();
        self.send().await;
    }

    /// Writes these durations, and the queued ones.
    fn write_timings(&mut self, timings: &mut Vec<Timing>) {
        timings.drain(..).for_each(|timing| self.lines.timing(timing));
        // No more than the queue holds, because calls can fill it meanwhile.
        for _ in 0..TIMINGS_AT_ONCE {
            let Ok(timing) = self.timings.receiver.try_recv() else { break };
            self.lines.timing(timing);
        }
    }

    fn write_stats(&mut self) {
        let mut counters = BTreeMap::new();
        for Stat { name, kind, value } in self.metrics.envoy_ratelimit_stats() {
            match kind {
                StatKind::Gauge => self.lines.gauge(&name, value),
                StatKind::Counter => *counters.entry(name).or_default() += value,
            }
        }
        for (name, value) in &counters {
            let units = added(self.sent.get(name).copied(), *value);
            if units > 0 {
                self.lines.count(name, units);
            }
        }
        self.sent = counters;
    }

    async fn send(&mut self) {
        let packets = self.lines.take_packets();
        if packets.is_empty() {
            return;
        }
        let mut unsent: u64 = packets.iter().map(|packet| packet.lines).sum();
        let sending = async {
            for Packet { text, lines } in &packets {
                if self.connection.send(text).await.is_ok() {
                    unsent -= lines;
                }
            }
        };
        let is_late = timeout(SEND_WITHIN, sending).await.is_err();
        if is_late {
            // Part of a line may have been sent.
            self.connection.close("it takes too long");
        }
        if unsent > 0 {
            self.timings.count_lost(unsent);
            if let Some(times) = self.throttle.count() {
                let (target, reason) = (&self.connection.target, &*self.connection.last_error);
                tracing::warn!(%target, times, lost = unsent, last = reason, "cannot send metrics to statsd");
            }
        }
    }
}

/// Returns a counter's increase since it was last sent. A lower value means that it restarted.
fn added(sent: Option<u64>, now: u64) -> u64 {
    match sent {
        Some(sent) if sent <= now => now - sent,
        _ => now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_sent_as_the_units_since_the_last_time() {
        let table = [(None, 3, 3), (Some(3), 3, 0), (Some(3), 5, 2), (Some(5), 1, 1)];
        for (sent, now, units) in table {
            assert_eq!(added(sent, now), units, "{sent:?} to {now}");
        }
    }
}
