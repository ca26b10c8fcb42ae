//! HTTP/1.1: decisions as JSON, health pages, metrics, and the admin pages on a port of their own.

mod admin;
mod counters;
mod health;
mod json;
mod public;
mod server;

pub use admin::{Admin, Page, admin};
pub use counters::Counters;
pub use json::Decider;
pub use public::{Public, public};
pub use server::{HttpOptions, serve};
