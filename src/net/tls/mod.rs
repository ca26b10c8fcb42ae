//! TLS on the ports: certificates that can be replaced while the process runs, client certificates, the thread of the
//! handshakes and their bounds.

mod client_name;
mod client_verifier;
mod crypto;
mod failure;
mod handshake_thread;
mod handshakes;
mod port_tls;
mod server_certificate;
#[cfg(test)]
pub(crate) mod testing;

pub use client_name::ClientName;
pub use handshake_thread::{HandshakeThread, HandshakeThreadError};
pub use handshakes::HandshakeBounds;
pub use port_tls::PortTls;
pub use server_certificate::{LoadedTls, Protocol, ServerTls, TlsFileError, TlsFileSetting};

pub(crate) use port_tls::Handshake;
