//! Notices: which shares are told, how often, and what a receiver gets.

mod known_answers;
pub(crate) mod receiver;
mod service;

pub(crate) use known_answers::check_known_answers;
