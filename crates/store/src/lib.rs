//! Stores that keep counters, and layers that wrap any store.
//!
//! Every store implements [`engine::Store`]. The service chooses the store and stacks the layers: a request to Redis
//! passes [`fallback`], [`release_later`], [`leases`], [`deny_cache`], [`observer`] and then [`redis`].
#![warn(clippy::panic, clippy::print_stderr, clippy::print_stdout)]

pub mod availability;
pub mod breaker;
pub mod deny_cache;
pub mod fallback;
pub mod leases;
pub mod marks;
pub mod memory;
pub mod observer;
pub mod redis;
pub mod release_later;
