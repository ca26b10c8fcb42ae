//! gRPC: the contract with Envoy, served by one single-threaded runtime per core.
//!
//! A connection: `acceptor` -> `worker` -> `connection`, which is served by `http2`.
//! A call: `http2` -> `call_head` -> `call`, which reads the `message` and decodes it (`convert`) -> `Handler::decide`
//! -> `convert` -> `http2`. `open_calls` counts the calls. Outside this module only the commands that are clients use
//! generated types.

mod acceptor;
mod call;
mod call_head;
mod connection;
mod convert;
mod http2;
mod message;
mod open_calls;
mod other_services;
mod server;
mod service;
mod silence;
#[cfg(test)]
mod tests;
mod worker;

pub mod pb {
    //! The wire contract as generated from `proto/`, one module per package.

    include!(concat!(env!("OUT_DIR"), "/contract.rs"));

    /// For reflection: an encoded `FileDescriptorSet`.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contract.bin"));
}

pub use server::serve;
pub use service::{BoxError, GrpcError, GrpcOptions, GrpcService, WorkerContext};
