//! gRPC: the contract with Envoy, served by workers with a single-threaded runtime each. Outside this module only the
//! commands that are clients use generated types.
//!
//! Read `service` first: it is the contract, with tonic. A call is converted (`convert`), and decided by
//! `Handler::decide`, the handler of gRPC and `/json`. `other_services`, health and reflection, stand beside it.
//!
//! Two servers can serve the connections:
//! - `tonic_server`: tonic's own, with hyper (`server.grpc.fast: false`), and `tonic_refusals`, for the calls that it
//!   does not bring to the service
//! - `fast`: the fast path, on by default. It answers the same calls with less work, and bounds more of what a hostile
//!   client can do. A reader of a decision may skip this folder.
//!
//! Both have these parts:
//! - `acceptor`: accepts a connection, and assigns it to a worker
//! - `worker`: the thread that serves it; the others reach it by its `worker_link`
//! - `head`: what the head of a call must be

mod acceptor;
mod convert;
mod fast;
mod head;
mod other_services;
mod service;
mod tonic_refusals;
mod tonic_server;
mod worker;
mod worker_link;

#[expect(clippy::allow_attributes, reason = "generated")]
pub mod pb {
    //! The wire contract as generated from `proto/`, one module per package.

    include!(concat!(env!("OUT_DIR"), "/contract.rs"));

    /// For reflection: an encoded `FileDescriptorSet`.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/contract.bin"));
}

pub use worker::{BoxError, GrpcError, GrpcOptions, GrpcService, MakeContext, WorkerContext, serve};
