//! What the service exports like envoyproxy/ratelimit, beside its own metrics and log: the hits of limits and the
//! response times, their dotted names and families, statsd, and the lines of the log. What is counted at a request or a
//! decision is counted by one call of a `HitMeter` or of a `DurationMeter`. The variables of envoyproxy/ratelimit are
//! translated in `src/envoy_ratelimit`.

mod hits;
mod log_lines;
mod names;
mod other_forms;
mod response_times;
mod statsd;

pub use names::{Stat, StatKind};
pub use response_times::ResponseTimeUnit;
pub use statsd::{
    Mogrifier, Mogrifiers, Statsd, StatsdFormat, StatsdOptions, StatsdTarget, TimingQueue, Timings,
    timing_queue,
};

pub(super) use hits::{HitBinding, HitFamilies, HitMeter, OVERRIDE_PATH};
pub(super) use log_lines::EnvoyRatelimitLines;
pub(super) use names::{FAMILIES, OwnCounts, Stats, families};
pub(super) use other_forms::{DurationMeter, GrpcMethod};
pub(super) use response_times::{RESPONSE_TIME, ResponseTimes};
pub(super) use statsd::lost_lines;
