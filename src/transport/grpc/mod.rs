//! gRPC: the contract with Envoy, served by one single-threaded runtime per core.
//!
//! The path of a call: `rls` -> `convert` -> handler -> `convert`. Generated types are used nowhere else, except by the
//! client of the `check` command.

mod acceptor;
pub mod codec;
mod connection;
mod convert;
mod dispatch;
mod health;
pub mod pb;
mod rls;
mod server;
mod service;
mod status;
mod worker;
mod worker_pool;

pub use server::serve;
pub use service::{BoxError, GrpcError, GrpcOptions, GrpcService, WorkerContext};
