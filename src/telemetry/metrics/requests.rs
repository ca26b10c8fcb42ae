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
    invalid: [IntCounter; 2],
    store_error: [IntCounter; 2],
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
                "Requests answered with an error: invalid requests (invalid), or no answer from the store (store)",
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
        let errors = |kind, err_type| {
            [
                self.errors.with_label_values(&[transport.name(), kind]),
                self.envoy_ratelimit_errors.with_label_values(&[err_type]),
            ]
        };
        RequestMeter {
            duration: self.durations.with_label_values(&[transport.name()]),
            invalid: errors("invalid", "service_error"),
            store_error: errors("store", "redis_error"),
        }
    }
}

impl RequestMeter {
    /// Starts to time a request.
    #[must_use]
    pub fn start(&self) -> Timer<'_> {
        Timer { duration: &self.duration, started: monotonic() }
    }

    /// Counts a request that cannot be decided: the caller's mistake.
    pub fn invalid(&self) {
        self.invalid.iter().for_each(IntCounter::inc);
    }

    /// Counts a request that failed because the store gave no answer.
    pub fn store_error(&self) {
        self.store_error.iter().for_each(IntCounter::inc);
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.duration.observe(self.started.elapsed().as_secs_f64());
    }
}
