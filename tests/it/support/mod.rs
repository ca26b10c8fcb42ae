//! The real servers the tests run against, each started on its own port and killed when it is dropped.
//!
//! Nothing here knows what a test wants to see; nothing here stands in for a server that can run. What is missing
//! fails the test with the command that installs it.

pub mod certificates;
pub mod daemon;
pub mod envoy;
pub mod grpc;
pub mod hosts;
pub mod http;
pub mod ports;
pub mod process;
pub mod properties;
pub mod redis;
pub mod wait;
