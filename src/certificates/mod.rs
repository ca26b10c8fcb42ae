//! Certificates and keys in PEM files: reads them, says what a certificate contains, and notices that files have
//! changed.
//!
//! Knows files and X.509. Knows no port, no setting and no TLS connection.

mod der;
mod facts;
mod pem_file;
mod watched_files;

pub use facts::CertificateFacts;
pub use pem_file::{PemError, PemFault, PemFile};
pub use watched_files::WatchedFiles;
