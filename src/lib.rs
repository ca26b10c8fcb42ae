//! `ratelimitd` decides whether requests may go ahead: by YAML rules and exact algorithms, with counters in memory or
//! in Redis. docs/architecture.md describes the modules.
#![forbid(unsafe_code)]
// They panic when the output cannot be written: `cli/output.rs` is for results, `tracing` for the log.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod app;
mod certificates;
pub mod cli;
pub mod clock;
pub mod counters;
pub mod engine;
pub mod limiter;
pub mod markup;
mod protobuf;
pub mod replay;
pub mod rules;
pub mod settings;
pub mod simulate;
pub mod store;
pub mod telemetry;
pub mod transport;
pub mod xds;
mod yaml;
