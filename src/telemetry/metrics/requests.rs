//! Metrics of requests: duration by transport, failures, and what happens to their spans. Health checks count as well,
//! because envoyproxy/ratelimit counts them.

use std::array;
use std::time::Instant;

use base::clock::monotonic;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Registry, Result};
use strum::{IntoStaticStr, VariantArray};

use super::family::{
    CountersBy, DurationBuckets, REQUEST_DURATIONS, counter, counters, duration_buckets, durations,
};
use crate::telemetry::envoy_ratelimit::{
    DurationMeter, GrpcMethod, ResponseTimeUnit, ResponseTimes, TimingQueue,
};

/// The port of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Transport {
    /// `ShouldRateLimit`
    Grpc,
    /// `/json` and `/check`
    Http,
}

impl Transport {
    const ALL: [Self; 2] = [Self::Grpc, Self::Http];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
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
    NoRules,
    /// The caller's token is missing or unknown.
    Unauthenticated,
    /// The caller's token lacks a right.
    Forbidden,
    /// The client's deadline, or 15 s, passed before the decision.
    Deadline,
    Panic,
}

impl RequestFailure {
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Name in metrics and traces.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The meter of one transport's requests. Clones share the counts.
#[derive(Clone, Debug)]
pub struct RequestMeter {
    decisions: DurationMeter,
    health_checks: DurationMeter,
    failures: CountersBy<RequestFailure>,
    /// gRPC calls that start later.
    pub held: IntCounter,
    results: CountersBy<RequestResult>,
}

/// Measures the time until dropped.
#[derive(Debug)]
pub struct Timer<'m> {
    meter: &'m DurationMeter,
    started: Instant,
}

/// Result of a request. Every request has exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RequestResult {
    Ok,
    /// A failure policy answered at least one limit, and none denied the request.
    OkByPolicy,
    Denied,
    /// The request failed.
    NoDecision,
}

impl RequestResult {
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

impl RequestMeter {
    #[must_use]
    pub fn start(&self) -> Timer<'_> {
        Timer { meter: &self.decisions, started: monotonic() }
    }

    #[must_use]
    pub fn start_health_check(&self) -> Timer<'_> {
        Timer { meter: &self.health_checks, started: monotonic() }
    }

    pub fn failed(&self, failure: RequestFailure) {
        // A request whose answer is not taken was decided.
        if failure != RequestFailure::Untaken {
            self.results.count(RequestResult::NoDecision);
        }
        self.failures.count(failure);
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.meter.observe(self.started.elapsed());
    }
}

#[derive(Debug)]
pub(super) struct RequestFamilies {
    durations: HistogramVec,
    errors: IntCounterVec,
    held: IntCounter,
    pub(super) results: CountersBy<RequestResult>,
    /// Durations as in envoyproxy/ratelimit.
    pub(super) response_times: ResponseTimes,
}

impl RequestFamilies {
    pub(super) fn new(
        registry: &Registry,
        unit: ResponseTimeUnit,
        timings: Option<TimingQueue>,
    ) -> Result<Self> {
        let histogram = HistogramOpts::new(
            "ratelimitd_request_duration_seconds",
            "Seconds in the handler per request: conversion, validation, decision",
        );
        let durations = durations(registry, histogram.buckets(REQUEST_DURATIONS.to_vec()), "transport")?;
        let decisions = durations.with_label_values(&[Transport::Grpc.into_str()]);
        let held = counter(
            registry,
            "ratelimitd_held_calls_total",
            "gRPC calls held back at their start because the store was busy",
        )?;
        let results = counters(
            registry,
            "ratelimitd_requests_total",
            "Requests by result: ok; ok_by_policy, where a failure policy answered for a limit; denied; \
             no_decision",
            &["result"],
        )?;
        let families = Self {
            held,
            results: CountersBy::new(&results, &[]),
            response_times: ResponseTimes::new(decisions, unit, timings)?,
            durations,
            errors: counters(
                registry,
                "ratelimitd_request_errors_total",
                "Requests without a decision, by reason: invalid, store, incomplete, overloaded, untaken, no_rules, \
                 deadline, panic",
                &["transport", "kind"],
            )?,
        };
        // Every series exists from the start, so that the first error is an increase.
        for transport in Transport::ALL {
            families.meter(transport);
        }
        Ok(families)
    }

    pub(super) fn meter(&self, transport: Transport) -> RequestMeter {
        let decisions = match transport {
            Transport::Grpc => self.response_times.meter(GrpcMethod::ShouldRateLimit),
            // envoyproxy/ratelimit times only gRPC.
            Transport::Http => DurationMeter::new(self.durations.with_label_values(&[transport.into_str()])),
        };
        RequestMeter {
            decisions,
            health_checks: self.response_times.meter(GrpcMethod::Check),
            failures: self.errors_of(transport),
            held: self.held.clone(),
            results: self.results.clone(),
        }
    }

    fn errors_of(&self, transport: Transport) -> CountersBy<RequestFailure> {
        CountersBy::new(&self.errors, &[transport.into_str()])
    }

    /// Requests by result, in the order of [`RequestResult::ALL`].
    pub(super) fn results(&self) -> [u64; RequestResult::ALL.len()] {
        array::from_fn(|place| self.results.counter(RequestResult::ALL[place]).get())
    }

    /// Durations of all decision calls.
    pub(super) fn durations(&self) -> DurationBuckets {
        duration_buckets(&Transport::ALL.map(|port| self.durations.with_label_values(&[port.into_str()])))
    }

    /// Failed requests of all transports by reason, in the order of [`RequestFailure::ALL`].
    pub(super) fn failures(&self) -> [u64; RequestFailure::ALL.len()] {
        let errors = Transport::ALL.map(|transport| self.errors_of(transport));
        array::from_fn(|place| {
            errors.iter().map(|errors| errors.counter(RequestFailure::ALL[place]).get()).sum()
        })
    }
}

/// Counts the spans of requests.
#[derive(Clone, Debug)]
pub struct TraceMeter {
    pub sent: IntCounter,
    pub lost: IntCounter,
}

impl TraceMeter {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let lost = "Spans lost: the collector is unreachable or too slow, or rejected them";
        Ok(Self {
            sent: counter(registry, "ratelimitd_trace_spans_sent_total", "Spans accepted by the collector")?,
            lost: counter(registry, "ratelimitd_trace_spans_lost_total", lost)?,
        })
    }
}
