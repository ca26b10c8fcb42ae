//! TLS on the ports: the handshakes, their thread and their bounds. The crate `tls` builds the configurations, which
//! can be replaced while the process runs.

mod failure;
mod handshake_thread;
mod handshakes;
mod port_tls;
#[cfg(test)]
pub(crate) mod testing;

pub use handshake_thread::HandshakeThread;
pub use handshakes::handshake_bounds;
pub use port_tls::PortTls;
