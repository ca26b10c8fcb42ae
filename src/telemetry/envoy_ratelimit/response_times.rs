//! Exports gRPC call durations as envoyproxy/ratelimit does: a histogram with its buckets, in seconds or milliseconds,
//! and each single duration for statsd.

use std::sync::Arc;

use prometheus::core::Metric as _;
use prometheus::proto::{Metric, MetricFamily};
use prometheus::{Histogram, HistogramOpts, Result};
use strum::{EnumString, VariantNames};

use super::names::Stats;
use super::other_forms::{DurationMeter, GrpcMethod, OtherForms};
use super::statsd::TimingQueue;
use crate::telemetry::metrics::family::{ReadFamily, label_pairs};

pub(crate) const RESPONSE_TIME: ReadFamily = ReadFamily::histogram(
    "ratelimit_service_response_time_seconds",
    "Duration of calls by gRPC method, in seconds, or in milliseconds if metrics.response_time says so",
);

/// Upper bounds of the buckets, in seconds or milliseconds. The service's own histogram also has all of them.
const BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Unit of the histogram, whose name is the same for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum ResponseTimeUnit {
    #[default]
    Seconds,
    /// Whole milliseconds, truncated.
    Milliseconds,
}

#[derive(Debug)]
pub(crate) struct ResponseTimes {
    /// In the order of [`GrpcMethod::ALL`].
    by_method: [DurationMeter; GrpcMethod::ALL.len()],
}

impl ResponseTimes {
    /// `decisions`: the seconds of `ShouldRateLimit`.
    pub(crate) fn new(
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

    pub(crate) fn meter(&self, method: GrpcMethod) -> DurationMeter {
        self.by_method[method as usize].clone()
    }

    /// Adds the number of calls of each method.
    pub(crate) fn add_calls_to(&self, stats: &mut Stats) {
        for (method, meter) in GrpcMethod::ALL.iter().zip(&self.by_method) {
            let name = format!("ratelimit_server.{}.total_requests", method.into_str());
            stats.counter(name, meter.seconds.get_sample_count());
        }
    }

    /// Reads the histograms of called methods.
    pub(crate) fn read_family(&self) -> MetricFamily {
        let mut family = RESPONSE_TIME.empty();
        for (method, meter) in GrpcMethod::ALL.iter().zip(&self.by_method) {
            let milliseconds = meter.others.as_ref().and_then(|others| others.milliseconds.as_ref());
            let mut histogram = milliseconds.unwrap_or(&meter.seconds).metric().get_histogram().clone();
            if histogram.get_sample_count() > 0 {
                let known =
                    histogram.get_bucket().iter().filter(|bucket| BUCKETS.contains(&bucket.upper_bound()));
                histogram.set_bucket(known.cloned().collect());
                let mut metric = Metric::from_label(label_pairs(&[("grpc_method", method.into_str())]));
                metric.set_histogram(histogram);
                family.mut_metric().push(metric);
            }
        }
        family
    }
}

fn histogram() -> Result<Histogram> {
    let ReadFamily { name, help, .. } = RESPONSE_TIME;
    Histogram::with_opts(HistogramOpts::new(name, help).buckets(BUCKETS.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus::TextEncoder;

    use super::*;
    use crate::telemetry::metrics::family::REQUEST_DURATIONS;

    #[test]
    fn our_own_histogram_has_the_buckets_of_envoyproxy_ratelimit() {
        assert!(BUCKETS.iter().all(|bound| REQUEST_DURATIONS.contains(bound)));
    }

    #[test]
    fn a_histogram_of_milliseconds_has_whole_milliseconds() {
        let decisions = histogram().expect("a good histogram");
        let times = ResponseTimes::new(decisions, ResponseTimeUnit::Milliseconds, None).expect("a histogram");
        times.meter(GrpcMethod::ShouldRateLimit).observe(Duration::from_micros(7_900));
        let text = TextEncoder::new().encode_to_string(&[times.read_family()]).expect("a family with series");
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
