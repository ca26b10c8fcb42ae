//! The metrics of envoyproxy/ratelimit: behaviours that were recorded there are played here, and the metrics compared.
//!
//! `tests/data/metrics/behaviours.json` has for each behaviour the environment, the rules, the calls, and what
//! Prometheus, statsd and DogStatsD then had. Durations are left out but for their number; of the lines of statsd, the
//! counters are summed, and gauges have their last value. `near_limit.json` has sequences of hits and their counters.

pub mod behaviour;
mod differences;
mod exposition;
mod near_limit;
mod port;
pub mod prometheus;
pub mod statsd;
