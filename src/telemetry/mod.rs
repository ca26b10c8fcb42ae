//! What operators see of the process: metrics, logs, and whether the remote store decides.

pub mod availability;
pub mod logging;
pub mod metrics;
