//! Serves HTTP/1.1: decisions as JSON, health, metrics, and the admin endpoints on their own port.
//!
//! `server` accepts and bounds connections. `public` routes the HTTP port, `admin` the admin port, once `admin_access`
//! has checked the sender and `admin_token` the token.

mod admin;
mod admin_access;
mod admin_token;
mod check;
mod connections;
mod console;
mod console_page;
mod console_streams;
mod counter_changes;
mod exceptions;
mod forwarded;
mod holds;
mod json;
mod own_token;
mod public;
mod server;
mod usage;

pub use admin::{CounterEndpoints, Endpoint, Explain, ListService, admin_router};
pub use admin_access::AdminAccess;
pub use admin_token::AccessCheck;
pub use check::CheckOptions;
pub use console::ConsoleEndpoints;
pub use own_token::{OwnTokenError, make_own_token, read_own_token};
pub use public::{PAGE_NOT_FOUND, metrics_router, public_router};
pub use server::{HttpService, serve};
pub use usage::UsageEndpoint;

pub use crate::net::token_file::{Token, TokenFile};
