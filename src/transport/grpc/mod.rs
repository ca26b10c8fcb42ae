//! gRPC: the contract that Envoy speaks, served by one single-threaded runtime per core.
//!
//! The path of a call: `rls` -> `convert` -> limiter -> `convert`. Generated types go no further, but to the client of
//! the `check` command.

pub mod codec;
mod connection;
mod convert;
mod crew;
mod dealer;
mod dispatch;
mod health;
pub mod pb;
mod rls;
mod server;
mod status;
mod worker;

pub use rls::Rls;
pub use server::{GrpcError, GrpcOptions, GrpcService, serve};
pub use worker::{BoxError, Station};
