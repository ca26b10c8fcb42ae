//! Stores called directly: changed numbers of limits, exceptions, and the deny cache.

mod changed_numbers;
mod deny_cache;
pub(crate) mod exceptions;
mod late_denials;
mod reservations;
mod settles;
