//! Sockets of the ports, for gRPC and HTTP. A connection passes `listener`, `admission`, `tls_port` and `socket`.
//! `unfinished` and `sending_page` are shared by all transports.

pub(crate) mod admission;
pub(crate) mod idle;
pub(crate) mod listener;
pub(crate) mod sending_page;
pub(crate) mod socket;
pub mod tls_port;
pub(crate) mod token_file;
pub(crate) mod unfinished;
mod unix_socket;

pub use admission::{Admission, ConnectionBounds};
pub use listener::{ListenAddress, ListenOptions, PortListener};
pub use unfinished::UnfinishedBytes;
pub use unix_socket::SocketAccess;
