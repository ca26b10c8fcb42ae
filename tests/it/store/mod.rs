//! Stores called directly: the contract of every store, and the deny cache.

pub(crate) mod contract;
mod deny_cache;
pub(crate) mod exceptions;
mod late_denials;
mod map_store;
mod reservations;
