//! HTTP/1.1: decisions as JSON, health, metrics, and the admin endpoints on their own port.

mod admin;
mod counters;
mod health;
mod json;
mod public;
mod server;

pub use admin::{Endpoint, admin_router};
pub use counters::CounterEndpoints;
pub use public::public_router;
pub use server::{HttpOptions, serve};
