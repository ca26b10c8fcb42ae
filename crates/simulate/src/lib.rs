//! Simulates what rules would have done to the requests of an access log.
//!
//! The engine decides on counters in memory, at the times of the log. *Judged* in names means the candidate rules, *in
//! force* the current ones (`--compare`).
#![warn(clippy::panic, clippy::print_stderr, clippy::print_stdout)]

pub mod bounds;
pub mod explain;
pub mod log;
mod mapping;
pub mod page;
pub mod pass;
pub mod replay;
pub mod report;
pub mod variants;
