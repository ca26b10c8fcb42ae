//! TLS without ports or metrics: certificate and secret files, rustls configurations, and client connections.
//!
//! Logs nothing: errors name the file and the reason ([`FileError`]). Entry points: [`ServerTls`] for ports,
//! [`ClientTls`] and `dial` for clients.
#![warn(clippy::panic, clippy::print_stderr, clippy::print_stdout)]

mod client;
mod client_verifier;
mod dial;
mod facts;
mod file;
mod port;
mod server_trust;

use std::sync::Arc;

use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::{Error as TlsError, InconsistentKeys};

use file::PemFile;

pub use client::{ClientConnector, ClientTls};
pub use client_verifier::ClientName;
pub use dial::{ByteStream, DialError, DialTimeouts, dial, dial_addresses, dial_unix};
pub use facts::CertificateFacts;
pub use file::{FileError, FileFault, MAX_SECRET_BYTES, read_secret};
pub use port::{LoadedTls, ServerTls, TlsFileError, TlsFileSetting};
pub use server_trust::{ClientTlsError, ServerCheck};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// The ALPN identifier.
    fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// Explicit, because the process-wide default panics with two providers among the dependencies.
fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Why a certificate and a key do not work together, blaming the right file.
fn pair_error(certificate: &PemFile, key: &PemFile, error: &TlsError) -> FileError {
    match error {
        TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let other = certificate.path().display();
            key.unusable(format_args!("does not match the certificate in {other}"))
        }
        TlsError::InvalidCertificate(_) => certificate.unusable(error),
        error => key.unusable(error),
    }
}
