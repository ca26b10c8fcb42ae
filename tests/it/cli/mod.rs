//! The commands of the binary other than `serve`: arguments, output, exit codes.

mod check;
pub(crate) mod counters;
pub(crate) mod replay;
mod rules;
