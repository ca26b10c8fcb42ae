//! What operators see of the process: metrics, logs, traces. All that imitates envoyproxy/ratelimit is in
//! `envoy_ratelimit/`: whoever reads how the limiter decides can skip that folder.

pub mod envoy_ratelimit;
mod log_queue;
pub mod logging;
pub mod metrics;
pub mod traces;

pub use log_queue::LogQueue;
