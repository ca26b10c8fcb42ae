//! Durations and errors of requests, by transport.

use std::time::Instant;

use prometheus::core::Metric as _;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Opts, Registry, Result};

use crate::clock::monotonic;

use super::family::{Reading, counters, durations, pulled};

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
}

impl RequestFailure {
    pub const ALL: [Self; 6] =
        [Self::Invalid, Self::Store, Self::Incomplete, Self::Overloaded, Self::Untaken, Self::NoRules];

    fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Store => "store",
            Self::Incomplete => "incomplete",
            Self::Overloaded => "overloaded",
            Self::Untaken => "untaken",
            Self::NoRules => "no_rules",
        }
    }

    /// The label of envoyproxy/ratelimit.
    fn error_type(self) -> &'static str {
        match self {
            Self::Store => "redis_error",
            Self::Invalid | Self::Incomplete | Self::Overloaded | Self::Untaken | Self::NoRules => {
                "service_error"
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct RequestFamilies {
    durations: HistogramVec,
    errors: IntCounterVec,
    envoy_ratelimit_errors: IntCounterVec,
}

/// The meter of one transport's requests. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct RequestMeter {
    duration: Histogram,
    /// In the order of [`RequestFailure::ALL`].
    failures: [[IntCounter; 2]; RequestFailure::ALL.len()],
}

/// Measures the time from [`RequestMeter::start`] until it is dropped.
#[derive(Debug)]
pub struct Timer<'m> {
    duration: &'m Histogram,
    started: Instant,
}

impl RequestFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let families = Self {
            durations: durations(
                registry,
                "ratelimitd_request_duration_seconds",
                "Duration in the handler: conversion, validation, decision",
                "transport",
            )?,
            errors: counters(
                registry,
                "ratelimitd_request_errors_total",
                "Requests without a decision, by reason: invalid, store, incomplete, overloaded, untaken, no_rules",
                &["transport", "kind"],
            )?,
            envoy_ratelimit_errors: counters(
                registry,
                "ratelimit_service_should_rate_limit_error",
                "Requests answered with an error, under the name of envoyproxy/ratelimit",
                &["err_type"],
            )?,
        };
        families.register_envoy_ratelimit_names(registry)?;
        // Every series exists from the start, so that the first error is an increase.
        for transport in [Transport::Grpc, Transport::Http] {
            families.meter(transport);
        }
        Ok(families)
    }

    /// The metrics of envoyproxy/ratelimit are read from ours, so that a request is counted once.
    fn register_envoy_ratelimit_names(&self, registry: &Registry) -> Result<()> {
        let options = |name, help| Opts::new(name, help).const_label("grpc_method", "ShouldRateLimit");
        let duration = self.durations.with_label_values(&[Transport::Grpc.name()]);
        let histogram = duration.clone();
        pulled(
            registry,
            options(
                "ratelimit_service_response_time_seconds",
                "Request duration, under the name of envoyproxy/ratelimit",
            ),
            move || Reading::Histogram(Box::new(histogram.metric().get_histogram().clone())),
        )?;
        pulled(
            registry,
            options("ratelimit_service_total_requests", "Requests, under the name of envoyproxy/ratelimit"),
            move || Reading::Counter(duration.get_sample_count()),
        )
    }

    pub(super) fn meter(&self, transport: Transport) -> RequestMeter {
        let counters = |failure: RequestFailure| {
            [
                self.errors.with_label_values(&[transport.name(), failure.name()]),
                self.envoy_ratelimit_errors.with_label_values(&[failure.error_type()]),
            ]
        };
        RequestMeter {
            duration: self.durations.with_label_values(&[transport.name()]),
            failures: RequestFailure::ALL.map(counters),
        }
    }
}

impl RequestMeter {
    /// Starts to time a request.
    #[must_use]
    pub fn start(&self) -> Timer<'_> {
        Timer { duration: &self.duration, started: monotonic() }
    }

    /// Counts a request without a decision.
    pub fn failed(&self, failure: RequestFailure) {
        self.failures[failure as usize].iter().for_each(IntCounter::inc);
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.duration.observe(self.started.elapsed().as_secs_f64());
    }
}
