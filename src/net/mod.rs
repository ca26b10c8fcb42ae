//! Sockets of ports, for gRPC and HTTP.
//!
//! The road of a connection: `listener` accepts it (`unix_socket` has the file of a Unix socket), `admission` counts it
//! among the connections of its port, `tls_port` does the handshake, and `socket` reads and writes, with a timeout for
//! writes. `idle` has the connections to close when a port is nearly full.
//!
//! Two helpers that all doors share: `unfinished` bounds the bytes of requests that have arrived in part, and
//! `sending_page` recognises the requests of web pages by their headers.

pub(crate) mod admission;
pub(crate) mod idle;
pub(crate) mod listener;
pub(crate) mod sending_page;
pub(crate) mod socket;
pub mod tls_port;
pub(crate) mod unfinished;
mod unix_socket;

pub use admission::{Admission, ConnectionBounds};
pub use listener::{ListenAddress, ListenOptions, PortListener};
pub use unfinished::UnfinishedBytes;
pub use unix_socket::SocketAccess;
