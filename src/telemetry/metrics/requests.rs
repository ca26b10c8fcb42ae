//! What a request counts: its duration, by transport, and its failure. A health check counts, too, because
//! envoyproxy/ratelimit counts it. `request_families` makes the meters and shows the counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::{Histogram, IntCounter};
use store::clock::monotonic;

use super::exports::{Timing, TimingQueue};

/// The port that a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `ShouldRateLimit`
    Grpc,
    /// `/json`
    Http,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }
}

/// Why a request got no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFailure {
    /// The request can never be decided.
    Invalid,
    /// The store did not answer.
    Store,
    /// The request did not arrive completely.
    Incomplete,
    /// The process has too many unfinished requests.
    Overloaded,
    /// The client did not take the answer.
    Untaken,
    /// No rules are loaded yet.
    NoRules,
    /// The time that the client gave to the call, or 15 s, passed before the decision.
    Deadline,
    /// The code of the service panicked.
    Panic,
}

impl RequestFailure {
    pub const ALL: [Self; 8] = [
        Self::Invalid,
        Self::Store,
        Self::Incomplete,
        Self::Overloaded,
        Self::Untaken,
        Self::NoRules,
        Self::Deadline,
        Self::Panic,
    ];

    /// The name in metrics and traces.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Store => "store",
            Self::Incomplete => "incomplete",
            Self::Overloaded => "overloaded",
            Self::Untaken => "untaken",
            Self::NoRules => "no_rules",
            Self::Deadline => "deadline",
            Self::Panic => "panic",
        }
    }
}

/// The meter of one transport's requests. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct RequestMeter {
    pub(super) decisions: DurationMeter,
    pub(super) health_checks: DurationMeter,
    /// In the order of [`RequestFailure::ALL`].
    pub(super) failures: [IntCounter; RequestFailure::ALL.len()],
    pub(super) held: IntCounter,
}

/// Measures the time from its start until it is dropped.
#[derive(Debug)]
pub struct Timer<'m> {
    meter: &'m DurationMeter,
    started: Instant,
}

/// Takes the durations of one kind of call.
#[derive(Clone, Debug)]
pub(super) struct DurationMeter {
    pub(super) seconds: Histogram,
    /// `None` if seconds are enough.
    pub(super) others: Option<Arc<OtherForms>>,
}

/// The forms of a duration that only some settings ask for.
#[derive(Debug)]
pub(super) struct OtherForms {
    pub(super) method: GrpcMethod,
    pub(super) milliseconds: Option<Histogram>,
    pub(super) timings: Option<TimingQueue>,
}

/// The calls that envoyproxy/ratelimit times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrpcMethod {
    ShouldRateLimit,
    /// The method of the health service.
    Check,
}

impl GrpcMethod {
    pub(super) const ALL: [Self; 2] = [Self::ShouldRateLimit, Self::Check];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ShouldRateLimit => "ShouldRateLimit",
            Self::Check => "Check",
        }
    }
}

impl RequestMeter {
    /// Starts to time a request.
    #[must_use]
    pub fn start(&self) -> Timer<'_> {
        Timer { meter: &self.decisions, started: monotonic() }
    }

    /// Counts a gRPC call that starts later.
    pub fn record_held(&self) {
        self.held.inc();
    }

    /// Starts to time a health check.
    #[must_use]
    pub fn start_health_check(&self) -> Timer<'_> {
        Timer { meter: &self.health_checks, started: monotonic() }
    }

    /// Counts a request without a decision.
    pub fn failed(&self, failure: RequestFailure) {
        self.failures[failure as usize].inc();
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.meter.observe(self.started.elapsed());
    }
}

impl DurationMeter {
    /// Takes the durations of calls that envoyproxy/ratelimit does not time.
    pub(super) fn new(seconds: Histogram) -> Self {
        Self { seconds, others: None }
    }

    pub(super) fn observe(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        if let Some(others) = &self.others {
            others.observe(took);
        }
    }
}

impl OtherForms {
    fn observe(&self, took: Duration) {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if let Some(milliseconds) = &self.milliseconds {
            // Durations of calls are far below 2^53 ms.
            milliseconds.observe(took_ms as f64);
        }
        if let Some(timings) = &self.timings {
            timings.push(Timing { method: self.method.name(), took_ms });
        }
    }
}
