//! gRPC: the contract with Envoy, served by one single-threaded runtime per core.
//!
//! The path of a call: `http2`, which serves the connection -> `call_head` -> `dispatch` -> `call`, which reads the
//! `message` and makes a request of it (`usual_request`, else `field_count` and `convert`) -> `Handler::decide` ->
//! `encoded_answer` -> `http2`. Outside this module only the client of the `check` command uses generated types.

mod acceptor;
mod call;
mod call_head;
mod connection;
mod connection_server;
mod convert;
mod dispatch;
mod encoded_answer;
mod field_count;
mod health;
mod http2;
mod idle_watch;
mod message;
mod open_calls;
mod open_streams;
pub mod pb;
mod server;
mod service;
mod status;
mod stream_body;
#[cfg(test)]
mod tests;
mod turn;
mod usual_request;
mod worker;
mod worker_pool;

pub use server::serve;
pub use service::{BoxError, GrpcError, GrpcOptions, GrpcService, WorkerContext};
pub use usual_request::usual_request;
