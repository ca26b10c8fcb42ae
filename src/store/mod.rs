//! Where counters live. Knows the engine and its port; knows nothing of rules, transports or telemetry.

pub mod redis;
