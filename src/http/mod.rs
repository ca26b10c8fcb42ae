//! HTTP/1.1: decisions as JSON, health, metrics, and the admin endpoints on their own port.

mod admin;
mod admin_access;
mod body;
mod connections;
mod counters;
mod health;
mod json;
mod public;
mod server;
mod token_file;
mod web_page;

pub use admin::{Endpoint, admin_router};
pub use admin_access::AdminAccess;
pub use counters::CounterEndpoints;
pub use public::{PAGE_NOT_FOUND, metrics_router, public_router};
pub use server::{HttpService, serve};
pub use token_file::{Token, TokenFile};
