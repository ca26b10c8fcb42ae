//! The real servers of the tests. Each gets its own port and is killed when it is dropped.
//!
//! No server is replaced by a mock. If a program is missing, the test fails with the command that installs it.

pub mod ads;
pub mod certificates;
pub mod chromium;
pub mod collector;
pub mod cut_stream;
pub mod daemon;
pub mod envoy;
pub mod grpc;
pub mod grpc_go;
pub mod hosts;
pub mod http;
pub mod image;
pub mod json_schema;
pub mod ports;
pub mod process;
pub mod program;
pub mod properties;
pub mod ratelimit;
pub mod redis;
pub mod terminal;
pub mod third_party;
pub mod tls;
pub mod unwritable;
pub mod wait;
pub mod yaml;
