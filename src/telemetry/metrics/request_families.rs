//! The series of requests: durations and errors by transport.

use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Registry, Result};

use super::family::{REQUEST_DURATIONS, counters, durations};
use super::requests::{DurationMeter, RequestFailure, RequestMeter, RequestResult, ResultMeter, Transport};
use super::sample::{DurationBuckets, of_transports};
use crate::telemetry::envoy_ratelimit::{GrpcMethod, ResponseTimeUnit, ResponseTimes, TimingQueue};

#[derive(Debug)]
pub(super) struct RequestFamilies {
    durations: HistogramVec,
    errors: IntCounterVec,
    held: IntCounter,
    pub(super) result_meter: ResultMeter,
    /// The durations like envoyproxy/ratelimit.
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
            "Duration in the handler: conversion, validation, decision",
        );
        let durations = durations(registry, histogram.buckets(REQUEST_DURATIONS.to_vec()), "transport")?;
        let decisions = durations.with_label_values(&[Transport::Grpc.name()]);
        let held = IntCounter::new(
            "ratelimitd_held_calls_total",
            "gRPC calls that waited before they started, because the store had enough to decide",
        )?;
        registry.register(Box::new(held.clone()))?;
        let results = counters(
            registry,
            "ratelimitd_requests_total",
            "Requests by result: ok; ok_by_policy, a failure policy answered for a limit; denied; no_decision",
            &["result"],
        )?;
        let result_meter = ResultMeter {
            counters: RequestResult::ALL.map(|result| results.with_label_values(&[result.name()])),
        };
        let families = Self {
            held,
            result_meter,
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
            results: self.result_meter.clone(),
        }
    }

    fn error_counter(&self, transport: Transport, failure: RequestFailure) -> IntCounter {
        self.errors.with_label_values(&[transport.name(), failure.name()])
    }

    /// The number of requests with each result, in the order of [`RequestResult::ALL`].
    pub(super) fn results(&self) -> [u64; RequestResult::ALL.len()] {
        self.result_meter.counters.each_ref().map(IntCounter::get)
    }

    /// The durations of all decision calls.
    pub(super) fn durations(&self) -> DurationBuckets {
        of_transports(&self.durations)
    }

    /// The number of requests that failed for each reason, of all transports, in the order of [`RequestFailure::ALL`].
    pub(super) fn failures(&self) -> [u64; RequestFailure::ALL.len()] {
        let transports = [Transport::Grpc, Transport::Http];
        RequestFailure::ALL.map(|why| transports.map(|port| self.error_counter(port, why).get()).iter().sum())
    }
}
