//! Windows of calendars: known answers for every store, keys, and what operators see of them.

mod check;
mod known_answers;
mod rules;
mod simulate;

pub(crate) use known_answers::check_known_answers;
