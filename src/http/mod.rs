//! HTTP/1.1: decisions as JSON, health, metrics, and the admin endpoints on their own port.

mod admin;
mod admin_access;
mod connections;
mod json;
mod public;
mod server;
mod token_file;

pub use admin::{CounterEndpoints, Endpoint, admin_router};
pub use admin_access::AdminAccess;
pub use public::{PAGE_NOT_FOUND, metrics_router, public_router};
pub use server::{HttpService, serve};
pub use token_file::{Token, TokenFile};
