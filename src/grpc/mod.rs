//! gRPC: the contract with Envoy, served by workers with a single-threaded runtime each, on the h2 crate. Outside this
//! module only the commands that are clients use generated types.
//!
//! The road of a connection:
//! - `acceptor`: accepts it, and assigns it to a worker
//! - `worker`: the thread that serves it, among `served_connections`; the others reach it by its `worker_link`
//! - `connection`: its life, from the handshake of HTTP/2 to GOAWAY. Its task reads frames and writes answers.
//! - `connection_io`: its bytes on the way to h2, bounded in time and number
//! - `silence`: PINGs while it has no calls
//! - `balance`: as many workers as the load needs; connections move between them (`placement`)
//!
//! The road of a call, on the task of its connection:
//! - `accepted_calls`: the calls that have arrived, started in order, or held while the store has enough to decide
//! - `open_calls`: how many calls a connection and its worker have
//! - `call`: the head of the call; then its message is read (`message`)
//! - `decisions`: the border towards `decide`. Its one function is all that this folder knows of rules, limits and the
//!   store. The message is converted (`convert`), and decided by `Handler::decide`, the handler of gRPC and `/json`.
//! - `answering`: the answer, converted (`convert`) and sent. A call that waits for its message, the store or a client
//!   continues in a task of its own.
//!
//! A decision takes less time than the task, the boxed body and the timer that a general HTTP server gives to each
//! call. Here a call whose message has arrived with its headers is started on the task of its connection, and answered
//! there if its counters are in memory or the deny cache denies it. That saves an eighth of the instructions of a
//! decision. The calls of `other_services`, which are tonic's, take the
//! road of `routed_calls`.

mod accepted_calls;
mod acceptor;
mod answering;
mod balance;
mod call;
mod connection;
mod connection_io;
mod convert;
mod decisions;
mod message;
mod open_calls;
mod other_services;
mod placement;
mod routed_calls;
mod served_connections;
mod silence;
#[cfg(test)]
mod tests;
mod worker;
mod worker_link;

pub mod pb {
    //! The wire contract as generated from `proto/`, one module per package.

    include!(concat!(env!("OUT_DIR"), "/contract.rs"));

    /// For reflection: an encoded `FileDescriptorSet`.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contract.bin"));
}

pub use decisions::Decisions;
pub use open_calls::GrpcOptions;
pub use worker::{BoxError, GrpcError, GrpcService, MakeContext, WorkerContext, serve};
