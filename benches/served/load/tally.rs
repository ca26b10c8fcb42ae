//! What a run of the generator counts: answers, latencies, and how well it kept its own schedule.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The end of a call.
pub enum Answer {
    Ok,
    OverLimit,
    /// A gRPC error, or a status of HTTP that is no decision.
    Error,
    /// None: the stream or the connection ended.
    Broken,
}

/// The results of all calls.
#[derive(Debug)]
pub struct Tally {
    /// Calls with a decision.
    pub answered: u64,
    pub over_limit: u64,
    /// Calls with an error as their answer.
    pub failed: u64,
    /// Calls without an answer: their stream or connection ended.
    pub broken: u64,
    /// From the first call to the last answer, without the time to connect.
    pub elapsed: Duration,
    /// The latency of calls with a decision, in microseconds.
    pub latency: Histogram<u64>,
    /// The latency of calls with an error as their answer, in microseconds.
    pub failure_latency: Histogram<u64>,
    /// CPU of the generator's own threads.
    pub generator: Duration,
    /// With a schedule: by how much each call was started after it was due, in microseconds.
    pub lateness: Histogram<u64>,
    /// With a schedule: calls that were started together with others that were due at another time.
    pub bunched: u64,
}

impl Tally {
    pub fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are valid");
        Self {
            answered: 0,
            over_limit: 0,
            failed: 0,
            broken: 0,
            elapsed: Duration::ZERO,
            failure_latency: latency.clone(),
            lateness: latency.clone(),
            latency,
            generator: Duration::ZERO,
            bunched: 0,
        }
    }

    pub fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.over_limit += other.over_limit;
        self.failed += other.failed;
        self.broken += other.broken;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.latency += &other.latency;
        self.failure_latency += &other.failure_latency;
        self.generator += other.generator;
        self.lateness += &other.lateness;
        self.bunched += other.bunched;
    }

    pub fn record(&mut self, answer: &Answer, latency: Duration) {
        match answer {
            Answer::Ok => self.answered += 1,
            Answer::OverLimit => {
                self.answered += 1;
                self.over_limit += 1;
            }
            Answer::Error => {
                self.failed += 1;
                self.failure_latency.saturating_record(micros(latency));
                return;
            }
            Answer::Broken => {
                self.broken += 1;
                return;
            }
        }
        self.latency.saturating_record(micros(latency));
    }

    /// Counts a call that was started this long after it was due.
    pub fn record_start(&mut self, lateness: Duration) {
        self.lateness.saturating_record(micros(lateness));
    }
}

/// At least 1, the least value of a histogram.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1)
}
