//! Exports what envoyproxy/ratelimit exports, in addition to the service's own metrics and log: hits of limits,
//! response times, their dotted names and families, statsd, and log lines. A request or decision is counted by one call
//! of a `RuleHits` or a `DurationMeter`. `src/envoy_ratelimit` translates the environment variables.

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

pub(super) use hits::{HitFamilies, OVERRIDE_PATH, RuleHits, add_hits};
pub(super) use log_lines::EnvoyRatelimitLines;
pub(super) use names::{FAMILIES, OwnCounts, Stats, families};
pub(super) use other_forms::{DurationMeter, GrpcMethod};
pub(super) use response_times::{RESPONSE_TIME, ResponseTimes};
pub(super) use statsd::lost_lines;
