//! Durations and errors of requests, by transport; the duration of health checks, which envoyproxy/ratelimit counts
//! as well.

use std::time::Instant;

use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Registry, Result};
use store::clock::monotonic;

use super::exports::TimingQueue;
use super::family::{REQUEST_DURATIONS, counters, durations};
use super::response_times::{DurationMeter, GrpcMethod, ResponseTimeUnit, ResponseTimes};
use super::series::Exposition;

/// The port that a request came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `ShouldRateLimit`
    Grpc,
    /// `/json`
    Http,
}

impl Transport {
    fn name(self) -> &'static str {
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

#[derive(Debug)]
pub(super) struct RequestFamilies {
    durations: HistogramVec,
    errors: IntCounterVec,
    held: IntCounter,
    response_times: ResponseTimes,
}

/// The meter of one transport's requests. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct RequestMeter {
    decisions: DurationMeter,
    health_checks: DurationMeter,
    /// In the order of [`RequestFailure::ALL`].
    failures: [IntCounter; RequestFailure::ALL.len()],
    held: IntCounter,
}

/// Measures the time from its start until it is dropped.
#[derive(Debug)]
pub struct Timer<'m> {
    meter: &'m DurationMeter,
    started: Instant,
}

impl RequestFamilies {
    pub(super) fn new(
        registry: &Registry,
        unit: ResponseTimeUnit,
        timings: Option<TimingQueue>,
    ) -> Result<Self> {
        let histogram = HistogramOpts::new(
            "ratelimitd_request_duration_seconds",
            "Duration in the handler: conversion, validation, decision",
        );
        let durations = durations(registry, histogram.buckets(REQUEST_DURATIONS.to_vec()), "transport")?;
        let decisions = durations.with_label_values(&[Transport::Grpc.name()]);
        let held = IntCounter::new(
            "ratelimitd_held_calls_total",
            "gRPC calls that waited before they started, because the store had enough to decide",
        )?;
        registry.register(Box::new(held.clone()))?;
        let families = Self {
            held,
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
        for transport in [Transport::Grpc, Transport::Http] {
            families.meter(transport);
        }
        Ok(families)
    }

    pub(super) fn meter(&self, transport: Transport) -> RequestMeter {
        let counter = |failure: RequestFailure| self.error_counter(transport, failure);
        let decisions = match transport {
            Transport::Grpc => self.response_times.meter(GrpcMethod::ShouldRateLimit),
            // envoyproxy/ratelimit times gRPC only.
            Transport::Http => DurationMeter::new(self.durations.with_label_values(&[transport.name()])),
        };
        RequestMeter {
            decisions,
            health_checks: self.response_times.meter(GrpcMethod::Check),
            failures: RequestFailure::ALL.map(counter),
            held: self.held.clone(),
        }
    }

    fn error_counter(&self, transport: Transport, failure: RequestFailure) -> IntCounter {
        self.errors.with_label_values(&[transport.name(), failure.name()])
    }

    /// The number of requests that failed so, of all transports.
    pub(super) fn failures(&self, failure: RequestFailure) -> u64 {
        [Transport::Grpc, Transport::Http].map(|port| self.error_counter(port, failure).get()).iter().sum()
    }

    /// The number of calls of each gRPC method.
    pub(super) fn calls(&self) -> [(&'static str, u64); 2] {
        self.response_times.calls()
    }

    pub(super) fn write(&self, exposition: &mut Exposition<'_>) {
        self.response_times.write(exposition);
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
