//! What rules would have done to the requests of an access log.
//!
//! `log` reads lines, `mapping` makes requests of them by a map, `pass` decides and counts, `report` is the result,
//! `page` its HTML page. `variants` makes the judged rules as every algorithm, `bounds` checks a report against the
//! bounds of the caller, and `explain` shows what one line becomes. Decisions are made by the engine on counters in
//! memory, at the times of the log, as `replay` makes them. Knows nothing of the command line.
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
