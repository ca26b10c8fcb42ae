//! What operators see of the process: metrics and statsd, logs, traces. What imitates envoyproxy/ratelimit has its
//! name: `metrics/reference.rs`, `statsd/` and `envoy_ratelimit_lines.rs`.

mod envoy_ratelimit_lines;
mod log_queue;
pub mod logging;
pub mod metrics;
pub mod statsd;
pub mod traces;

pub use log_queue::LogQueue;
