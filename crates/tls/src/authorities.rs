//! The authorities that a client trusts.

use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{Error as TlsError, RootCertStore};

use super::pem_file::{PemError, PemFault, PemFile};

/// Why the authorities of the operating system cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system's trust store cannot be used: {0}")]
pub struct SystemAuthoritiesError(String);

/// Authorities of a file, of the operating system, or both.
#[derive(Clone, Debug)]
pub struct Authorities {
    pub(super) trusted: RootCertStore,
    /// Those of the file.
    pub(super) in_file: Vec<CertificateDer<'static>>,
}

impl Authorities {
    /// # Errors
    /// When a certificate cannot be that of an authority.
    pub fn of_certificates(in_file: Vec<CertificateDer<'static>>) -> Result<Self, TlsError> {
        let mut trusted = RootCertStore::empty();
        for certificate in &in_file {
            trusted.add(certificate.clone())?;
        }
        Ok(Self { trusted, in_file })
    }

    /// # Errors
    /// When the file has no certificates, or one that cannot be that of an authority.
    pub fn of_file(file: &PemFile) -> Result<Self, PemError> {
        let authorities = Self::of_certificates(file.certificates()?);
        authorities.map_err(|error| file.error(PemFault::Unusable(error.to_string())))
    }

    /// # Errors
    /// When the operating system has none.
    pub fn of_system() -> Result<Self, SystemAuthoritiesError> {
        let mut authorities = Self { trusted: RootCertStore::empty(), in_file: Vec::new() };
        authorities.add_system()?;
        Ok(authorities)
    }

    /// Adds those of the operating system.
    ///
    /// # Errors
    /// When it has none. Nothing is changed then.
    pub fn add_system(&mut self) -> Result<(), SystemAuthoritiesError> {
        let system = rustls_native_certs::load_native_certs();
        let (added, _) = self.trusted.add_parsable_certificates(system.certs);
        if added == 0 {
            let why = system.errors.first().map_or("it is empty".to_owned(), ToString::to_string);
            return Err(SystemAuthoritiesError(why));
        }
        Ok(())
    }
}
