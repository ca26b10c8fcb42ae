//! The commands of the two programs other than `serve`: arguments, output, exit codes.

mod check;
pub(crate) mod counter_changes;
pub(crate) mod counters;
mod exception_files;
mod exceptions;
mod health;
mod install_help;
mod json_names;
mod live_exceptions;
mod migrate;
mod output;
mod past_decision;
mod programs;
mod reference;
pub(crate) mod replay;
mod rules;
mod scripts;
mod secrets;
pub(crate) mod slots;
mod terminal;
