//! Records call durations: in seconds, and in the other forms in which envoyproxy/ratelimit exports some of them.

use std::sync::Arc;
use std::time::Duration;

use prometheus::Histogram;
use strum::IntoStaticStr;

use super::statsd::{Timing, TimingQueue};

/// Records the durations of one kind of call.
#[derive(Clone, Debug)]
pub(crate) struct DurationMeter {
    pub(crate) seconds: Histogram,
    /// `None` if seconds are enough.
    pub(crate) others: Option<Arc<OtherForms>>,
}

/// Forms of a duration that only some settings require.
#[derive(Debug)]
pub(crate) struct OtherForms {
    pub(crate) method: GrpcMethod,
    pub(crate) milliseconds: Option<Histogram>,
    pub(crate) timings: Option<TimingQueue>,
}

/// Calls that envoyproxy/ratelimit times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(const_into_str)]
pub(crate) enum GrpcMethod {
    ShouldRateLimit,
    /// The health service's method.
    Check,
}

impl DurationMeter {
    /// For calls that envoyproxy/ratelimit does not time.
    pub(crate) fn new(seconds: Histogram) -> Self {
        Self { seconds, others: None }
    }

    pub(crate) fn observe(&self, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        if let Some(others) = &self.others {
            others.observe(took);
        }
    }
}

impl GrpcMethod {
    pub(crate) const ALL: [Self; 2] = [Self::ShouldRateLimit, Self::Check];
}

impl OtherForms {
    fn observe(&self, took: Duration) {
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        if let Some(milliseconds) = &self.milliseconds {
            // Call durations are far below 2^53 ms.
            milliseconds.observe(took_ms as f64);
        }
        if let Some(timings) = &self.timings {
            timings.push(Timing { method: self.method.into_str(), took_ms });
        }
    }
}
