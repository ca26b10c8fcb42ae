//! Decides whether requests may proceed: by YAML rules and exact algorithms, with counters in memory or in Redis.
//! docs/architecture.md describes the modules and the crates below `crates/`.
// They panic if the output cannot be written: `cli/output.rs` is for results, `tracing` for the log.
#![warn(clippy::panic, clippy::print_stderr, clippy::print_stdout)]

pub mod app;
pub mod cli;
pub mod console;
pub mod decide;
pub mod envoy_ratelimit;
pub mod grpc;
pub mod http;
pub mod ledger;
pub mod live;
pub mod net;
pub mod notify;
pub mod post;
pub mod settings;
pub mod telemetry;
pub mod xds;
