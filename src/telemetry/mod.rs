//! What the process exports for operators: metrics, logs, traces. `envoy_ratelimit/` only imitates
//! envoyproxy/ratelimit: skip it to find out how the limiter decides.

pub mod envoy_ratelimit;
mod log_queue;
pub mod logging;
pub mod metrics;
pub mod traces;

pub use log_queue::LogQueue;
