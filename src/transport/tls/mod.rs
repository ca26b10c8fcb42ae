//! TLS on the ports: certificates that can be replaced while the process runs, client certificates, and the bounds of
//! handshakes.

mod client_name;
mod client_verifier;
mod crypto;
mod failure;
mod handshakes;
mod port_tls;
mod server_certificate;
#[cfg(test)]
pub(super) mod testing;

pub use client_name::ClientName;
pub use handshakes::HandshakeBounds;
pub use port_tls::PortTls;
pub use server_certificate::{LoadedTls, Protocol, ServerTls, TlsFileError, TlsFileSetting};

pub(super) use port_tls::Handshake;
