//! The running service with the memory store, tested through its clients.

mod admin_access;
mod admin_address;
mod admin_token;
pub(crate) mod admission;
mod by_tonic;
pub(crate) mod changed_limits;
pub(crate) mod connections;
pub(crate) mod counted;
pub(crate) mod drain;
mod exceptions;
mod grpc;
mod grpc_socket;
pub(crate) mod http;
mod live_exceptions;
pub(crate) mod logging;
mod many_rules;
mod named_files;
mod rights;
pub(crate) mod secrets;
mod settings;
pub(crate) mod soft_limits;
mod start;
pub(crate) mod store_page;
mod tls;
pub(crate) mod traces;
pub(crate) mod usage;
mod web_pages;
