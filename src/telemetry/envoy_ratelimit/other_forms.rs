//! The forms in which envoyproxy/ratelimit exports the duration of one gRPC call, beside seconds.

use std::time::Duration;

use prometheus::Histogram;
use strum::IntoStaticStr;

use super::statsd::{Timing, TimingQueue};

/// The forms of a duration that only some settings ask for.
#[derive(Debug)]
pub(crate) struct OtherForms {
    pub(crate) method: GrpcMethod,
    pub(crate) milliseconds: Option<Histogram>,
    pub(crate) timings: Option<TimingQueue>,
}

/// The calls that envoyproxy/ratelimit times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
pub(crate) enum GrpcMethod {
    ShouldRateLimit,
    /// The method of the health service.
    Check,
}

impl GrpcMethod {
    pub(crate) const ALL: [Self; 2] = [Self::ShouldRateLimit, Self::Check];

    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

impl OtherForms {
    pub(crate) fn observe(&self, took: Duration) {
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
