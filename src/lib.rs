//! `ratelimitd` decides whether requests may go ahead: from YAML rules, by exact algorithms, with counters in memory
//! or in Redis. The map of the house is docs/architecture.md.
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod clock;
pub mod counters;
pub mod engine;
pub mod limiter;
pub mod replay;
pub mod rules;
pub mod settings;
pub mod store;
pub mod telemetry;
pub mod transport;
mod yaml;
