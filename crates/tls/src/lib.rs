//! Certificates and keys in PEM files: reads them, says what a certificate contains, notices that files have changed,
//! and decides which certificate of a server is trusted. Keeps the alert with which a server refuses ours.
//!
//! Knows files, X.509 and a TLS connection as a client. Knows no port and no setting.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod authorities;
mod facts;
mod noted_alert;
mod pem_file;
mod server_trust;
mod watched_files;

pub use authorities::{Authorities, SystemAuthoritiesError};
pub use facts::CertificateFacts;
pub use noted_alert::{NotedAlert, NotesAlert};
pub use pem_file::{PemError, PemFault, PemFile};
pub use server_trust::ServerTrust;
pub use watched_files::WatchedFiles;
