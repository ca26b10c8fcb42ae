//! Notices: which shares are reported, how often, and what arrives at a receiver.

mod known_answers;
pub(crate) mod receiver;
mod service;

pub(crate) use known_answers::check_known_answers;
