//! What operators see of the process: metrics, logs and traces.

mod library_lines;
mod log_queue;
pub mod logging;
pub mod metrics;
pub mod traces;

pub use log_queue::LogQueue;
