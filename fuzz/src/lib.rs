//! The fuzz targets: functions that get bytes and panic when a property does not hold.
//!
//! `fuzz_targets/` runs them with libFuzzer, `tests/fuzz/` with the inputs in `corpus/` and with changed copies of
//! them.

pub mod grpc_frames;
pub mod grpc_messages;
pub mod json_bodies;
mod panics;
pub mod redis_replies;
mod redis_server;
pub mod rule_files;
pub mod sequences;
mod service;
pub mod settings;
