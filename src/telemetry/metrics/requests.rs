//! What a request counts: its duration, by transport, its failure, and what becomes of its span. A health check counts,
//! too, because envoyproxy/ratelimit counts it. `request_families` makes the meters and shows the counts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::clock::monotonic;
use prometheus::{Histogram, IntCounter, Registry, Result};
use strum::IntoStaticStr;

use super::family::counter;
use crate::telemetry::envoy_ratelimit::OtherForms;

/// The port that a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Transport {
    /// `ShouldRateLimit`
    Grpc,
    /// `/json` and `/check`
    Http,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        self.into()
    }
}

/// Why a request got no decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
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
        self.into()
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
    pub(super) results: ResultMeter,
}

/// Measures the time from its start until it is dropped.
#[derive(Debug)]
pub struct Timer<'m> {
    meter: &'m DurationMeter,
    started: Instant,
}

/// What became of a request. Every request that came has exactly one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum RequestResult {
    Ok,
    /// At least one limit was answered by its failure policy, and none denied the request.
    OkByPolicy,
    Denied,
    /// The request got no decision.
    NoDecision,
}

impl RequestResult {
    pub const ALL: [Self; 4] = [Self::Ok, Self::OkByPolicy, Self::Denied, Self::NoDecision];

    pub(super) fn name(self) -> &'static str {
        self.into()
    }
}

/// Counts requests by their result. Clones share the same numbers.
#[derive(Clone, Debug)]
pub(crate) struct ResultMeter {
    /// In the order of [`RequestResult::ALL`].
    pub(super) counters: [IntCounter; RequestResult::ALL.len()],
}

impl ResultMeter {
    pub(super) fn count(&self, result: RequestResult) {
        self.counters[result as usize].inc();
    }
}

/// Takes the durations of one kind of call.
#[derive(Clone, Debug)]
pub(crate) struct DurationMeter {
    pub(crate) seconds: Histogram,
    /// `None` if seconds are enough.
    pub(crate) others: Option<Arc<OtherForms>>,
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
        // A request whose answer is not taken was decided.
        if failure != RequestFailure::Untaken {
            self.results.count(RequestResult::NoDecision);
        }
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

    pub(crate) fn observe(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        if let Some(others) = &self.others {
            others.observe(took);
        }
    }
}

/// Counts the spans of requests.
#[derive(Clone, Debug)]
pub struct TraceMeter {
    sent: IntCounter,
    lost: IntCounter,
}

impl TraceMeter {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let lost = "Spans that were not sent: the collector is not reached, too slow, or refused them";
        Ok(Self {
            sent: counter(registry, "ratelimitd_trace_spans_sent_total", "Spans that the collector took")?,
            lost: counter(registry, "ratelimitd_trace_spans_lost_total", lost)?,
        })
    }

    pub fn sent(&self, spans: u64) {
        self.sent.inc_by(spans);
    }

    pub fn lost(&self, spans: u64) {
        self.lost.inc_by(spans);
    }
}
