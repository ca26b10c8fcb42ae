//! The tests of the gRPC port once more, on tonic's server (`server.grpc.fast: false`). Where its callers see something
//! else, the test names the difference.

#![expect(clippy::duplicate_mod, reason = "the same tests, with another setting: `Plan::server_of`")]

#[path = "connections.rs"]
mod connections;
#[path = "drain.rs"]
mod drain;
#[path = "grpc/mod.rs"]
mod grpc;
#[path = "grpc_socket.rs"]
mod grpc_socket;
#[path = "rights.rs"]
mod rights;
#[path = "tls/mod.rs"]
mod tls;
