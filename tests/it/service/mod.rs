//! The running service on the memory store, as its clients see it.

pub(crate) mod admission;
pub(crate) mod drain;
mod grpc;
pub(crate) mod http;
mod settings;
pub(crate) mod store_page;
