//! Certificates and keys in PEM files: reads them, and notices that they have changed.
//!
//! Knows files and PEM. Knows no setting and no TLS connection.

mod pem_file;
mod watched_files;

pub use pem_file::{PemError, PemFault, PemFile};
pub use watched_files::WatchedFiles;
