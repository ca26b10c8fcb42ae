//! gRPC: the contract with Envoy, served by one single-threaded runtime per core.
//!
//! The path of a call: `dispatch` -> `rls` -> `Handler::decide`, which calls `convert` for the request and for the
//! answer. Outside this module only the client of the `check` command uses generated types.

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
