//! Certificates and keys in PEM files: reads them, says what a certificate contains, notices that files have changed,
//! and decides which certificate of a server is trusted.
//!
//! Knows files and X.509. Knows no port, no setting and no TLS connection.

mod der;
mod facts;
mod pem_file;
mod server_trust;
mod watched_files;

pub use facts::CertificateFacts;
pub use pem_file::{PemError, PemFault, PemFile};
pub use server_trust::ServerTrust;
pub use watched_files::WatchedFiles;
