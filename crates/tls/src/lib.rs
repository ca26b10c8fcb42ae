//! Everything about TLS that needs no port and no metric: its files, its configurations, and the connections of
//! clients.
//!
//! | Module | Contents |
//! |---|---|
//! | `file` | reads PEM files, and the first line of a file with a secret; [`FileError`] has the file and the reason |
//! | `facts` | what a certificate says about itself, for logs, metrics and pages |
//! | `port` | [`ServerTls`]: the settings of a port and what is loaded from its files |
//! | `client_verifier` | which certificates of clients a port accepts |
//! | `client` | [`ClientTls`]: the settings of a client and the [`ClientConnector`] that is loaded from its files |
//! | `server_trust` | which certificates of servers a client accepts |
//! | `dial` | connects a client to a server by TCP, TLS or a Unix socket |
//!
//! Knows the names of the settings of a port's files, and no other setting. Logs nothing.
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

/// What is spoken over TLS (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    /// The identifier of ALPN.
    fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// An explicit provider: with two providers among the dependencies, the process-wide default panics.
fn crypto_provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Why a certificate and a key cannot be used together. Names the file that is to blame.
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
