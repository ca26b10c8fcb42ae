//! From an address to a connection that can be used: DNS, TCP, TLS, the handshake, sentinels and the pool. Knows
//! nothing of what is sent.

mod budget;
mod dial;
mod dns;
mod endpoint;
mod pool;
mod sentinel;
mod target;

pub(crate) use self::budget::ConnectBudget;
pub(crate) use self::dial::RawConnection;
pub(crate) use self::endpoint::{Endpoint, endpoints};
pub(crate) use self::pool::{Connection, ConnectionPool, checkout, checkout_timeout, connection_pool};
pub(crate) use self::target::Target;
