//! The series of requests: durations and errors by transport, and the durations of gRPC calls as envoyproxy/ratelimit
//! exports them: a histogram with its buckets, in seconds or in milliseconds, and for statsd each duration by itself.

use std::sync::Arc;

use prometheus::core::Metric as _;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Registry, Result, proto,
};
use strum::{EnumString, VariantNames};

use super::exports::TimingQueue;
use super::family::{REQUEST_DURATIONS, counters, durations};
use super::requests::{DurationMeter, GrpcMethod, OtherForms, RequestFailure, RequestMeter, Transport};
use super::series::{Exposition, labels};

const NAME: &str = "ratelimit_service_response_time_seconds";
const HELP: &str = "Duration of calls by gRPC method; in milliseconds if metrics.response_time says so";

/// The upper bounds of the buckets, in seconds or in milliseconds. The histogram of our own has each of them, too.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The unit of the histogram. Its name is the same for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum ResponseTimeUnit {
    #[default]
    Seconds,
    /// Whole milliseconds, cut off.
    Milliseconds,
}

#[derive(Debug)]
pub(super) struct RequestFamilies {
    durations: HistogramVec,
    errors: IntCounterVec,
    held: IntCounter,
    response_times: ResponseTimes,
}

/// The durations of every method.
#[derive(Debug)]
pub(super) struct ResponseTimes {
    /// In the order of [`GrpcMethod::ALL`].
    by_method: [DurationMeter; GrpcMethod::ALL.len()],
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

impl ResponseTimes {
    /// `decisions` takes the seconds of `ShouldRateLimit`.
    pub(super) fn new(
        decisions: Histogram,
        unit: ResponseTimeUnit,
        timings: Option<TimingQueue>,
    ) -> Result<Self> {
        let meter = |seconds, method| -> Result<_> {
            let milliseconds = (unit == ResponseTimeUnit::Milliseconds).then(histogram).transpose()?;
            let is_needed = milliseconds.is_some() || timings.is_some();
            let others = OtherForms { method, milliseconds, timings: timings.clone() };
            Ok(DurationMeter { seconds, others: is_needed.then(|| Arc::new(others)) })
        };
        let [first, second] = GrpcMethod::ALL;
        Ok(Self { by_method: [meter(decisions, first)?, meter(histogram()?, second)?] })
    }

    pub(super) fn meter(&self, method: GrpcMethod) -> DurationMeter {
        self.by_method[method as usize].clone()
    }

    /// The number of calls of each method.
    pub(super) fn calls(&self) -> [(&'static str, u64); GrpcMethod::ALL.len()] {
        GrpcMethod::ALL.map(|method| (method.name(), self.meter(method).seconds.get_sample_count()))
    }

    /// Writes the histograms of the methods that were called.
    pub(super) fn write(&self, exposition: &mut Exposition<'_>) {
        exposition.family(NAME, "histogram", HELP);
        for (method, meter) in GrpcMethod::ALL.iter().zip(&self.by_method) {
            let milliseconds = meter.others.as_ref().and_then(|others| others.milliseconds.as_ref());
            let histogram = milliseconds.unwrap_or(&meter.seconds).metric().get_histogram().clone();
            if histogram.get_sample_count() > 0 {
                write_histogram(&histogram, method.name(), exposition);
            }
        }
    }
}

fn histogram() -> Result<Histogram> {
    Histogram::with_opts(HistogramOpts::new(NAME, HELP).buckets(BUCKETS.to_vec()))
}

fn write_histogram(histogram: &proto::Histogram, method: &str, exposition: &mut Exposition<'_>) {
    let bucket = format!("{NAME}_bucket");
    for known in histogram.get_bucket().iter().filter(|known| BUCKETS.contains(&known.upper_bound())) {
        let bound = known.upper_bound().to_string();
        let labels = labels(&[("grpc_method", method), ("le", &bound)]);
        exposition.sample(&bucket, &labels, known.cumulative_count());
    }
    let count = histogram.get_sample_count();
    exposition.sample(&bucket, &labels(&[("grpc_method", method), ("le", "+Inf")]), count);
    let labels = labels(&[("grpc_method", method)]);
    exposition.sample(&format!("{NAME}_sum"), &labels, histogram.get_sample_sum());
    exposition.sample(&format!("{NAME}_count"), &labels, count);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn our_own_histogram_has_the_buckets_of_envoyproxy_ratelimit() {
        assert!(BUCKETS.iter().all(|bound| REQUEST_DURATIONS.contains(bound)));
    }

    #[test]
    fn a_histogram_of_milliseconds_has_whole_milliseconds() {
        let decisions = histogram().expect("a good histogram");
        let times = ResponseTimes::new(decisions, ResponseTimeUnit::Milliseconds, None).expect("a histogram");
        times.meter(GrpcMethod::ShouldRateLimit).observe(Duration::from_micros(7_900));
        let mut exposition = Exposition::new(String::new(), "");
        times.write(&mut exposition);
        let text = exposition.into_text();
        for line in [
            r#"ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="5"} 0"#,
            r#"ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le="10"} 1"#,
            r#"ratelimit_service_response_time_seconds_sum{grpc_method="ShouldRateLimit"} 7"#,
        ] {
            assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("Check"), "a method that was not called has no series");
    }
}
