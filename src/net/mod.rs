//! Sockets: listening, accepting, TLS of a port, and the bounds on connections and on bytes of unfinished requests.
//!
//! Knows nothing of the protocols on a connection.

pub(crate) mod admission;
pub(crate) mod idle;
pub(crate) mod listener;
pub(crate) mod sending_page;
pub(crate) mod socket;
pub mod tls;
pub(crate) mod unfinished;
mod unix_socket;

pub use admission::{Admission, ConnectionBounds};
pub use listener::{ListenAddress, ListenOptions, PortListener};
pub use unfinished::UnfinishedBytes;
pub use unix_socket::SocketAccess;
