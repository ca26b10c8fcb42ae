//! Stores called directly: the contract of every store, changed numbers of limits, and the deny cache.

pub(crate) mod changed_numbers;
pub(crate) mod contract;
mod deny_cache;
mod late_denials;
mod map_store;
mod reservations;
mod settles;
