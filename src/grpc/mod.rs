//! Serves the contract with Envoy over gRPC, from workers with single-threaded runtimes. Outside this module, only the
//! client commands use generated types.
//!
//! Read `service` first: it converts a call (`convert`), and decides it with `Handler::decide`, as `/json` does. Two
//! servers can serve the connections: `fast`, the default, and tonic's (`tonic_server`, `server.grpc.fast: false`).
//! Both share `acceptor`, `worker` and `head`.

mod acceptor;
mod convert;
mod fast;
mod head;
mod kuadrant;
mod other_services;
mod service;
mod tonic_refusals;
mod tonic_server;
mod worker;
mod worker_link;

#[expect(clippy::allow_attributes, clippy::too_many_lines, reason = "generated")]
pub mod pb {
    //! Wire contract generated from `proto/`, one module per package.

    include!("../../proto/generated/contract/mod.rs");

    /// For reflection: an encoded `FileDescriptorSet`.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../../proto/generated/contract/descriptors.bin");
}

pub use worker::{BoxError, GrpcError, GrpcOptions, GrpcService, MakeContext, WorkerContext, serve};
