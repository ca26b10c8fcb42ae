//! What operators see of the process: metrics, logs, and whether the remote store decides.

pub mod availability;
mod log_queue;
pub mod log_throttle;
pub mod logging;
pub mod metrics;
pub mod traces;

pub use log_queue::LogQueue;
