//! The commands of the binary other than `serve`: arguments, output, exit codes.

pub(crate) mod answers_corpus;
mod check;
pub(crate) mod counters;
mod health;
mod output;
pub(crate) mod replay;
mod rules;
mod secrets;
