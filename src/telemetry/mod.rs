//! What the outside may see of the inside: metrics and logs.

pub mod logging;
pub mod metrics;
