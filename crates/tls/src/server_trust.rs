//! Which server certificates a client accepts.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};

use super::file::{FileError, PemFile};

/// How much of a server's certificate is checked. The server must always have its certificate's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerCheck {
    #[default]
    ChainAndName,
    /// The certificate may have any name.
    Chain,
    /// Any certificate is accepted, as in Kubernetes probes: for calls to this host that send nothing secret.
    Nothing,
}

/// Why a client cannot use TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientTlsError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot load the system's trust store: {0}")]
    System(String),
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

/// The CAs of a file, of the operating system, or both.
#[derive(Debug)]
pub(super) struct Authorities {
    trusted: RootCertStore,
    /// The certificates of the file.
    in_file: Vec<CertificateDer<'static>>,
}

impl Authorities {
    /// # Errors
    /// If the file has no certificates, or one that cannot be a CA.
    pub(super) fn of_file(file: &PemFile) -> Result<Self, FileError> {
        let in_file = file.certificates()?;
        let mut trusted = RootCertStore::empty();
        for certificate in &in_file {
            trusted.add(certificate.clone()).map_err(|error| file.unusable(error))?;
        }
        Ok(Self { trusted, in_file })
    }

    /// # Errors
    /// If the operating system has no CAs.
    pub(super) fn of_system() -> Result<Self, ClientTlsError> {
        let mut authorities = Self { trusted: RootCertStore::empty(), in_file: Vec::new() };
        authorities.add_system()?;
        Ok(authorities)
    }

    /// Adds the operating system's CAs.
    ///
    /// # Errors
    /// If it has none.
    pub(super) fn add_system(&mut self) -> Result<(), ClientTlsError> {
        let system = rustls_native_certs::load_native_certs();
        let (added, _) = self.trusted.add_parsable_certificates(system.certs);
        if added == 0 {
            let why = system.errors.first().map_or("it is empty".to_owned(), ToString::to_string);
            return Err(ClientTlsError::System(why));
        }
        Ok(())
    }
}

/// Checks as much of the server's certificate as the client asks for. A certificate in the CA file is trusted as a
/// server certificate, too: many servers have a self-signed one marked as CA, which rustls accepts only as a CA.
#[derive(Debug)]
pub(super) struct ServerTrust {
    /// `None`: every certificate is accepted.
    chain: Option<Arc<WebPkiServerVerifier>>,
    in_file: Vec<CertificateDer<'static>>,
    check: ServerCheck,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerTrust {
    /// `authorities` is `None` if nothing is checked.
    ///
    /// # Errors
    /// If there are no CAs.
    pub(super) fn new(
        authorities: Option<Authorities>,
        check: ServerCheck,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, ClientTlsError> {
        let algorithms = provider.signature_verification_algorithms;
        let Some(Authorities { trusted, in_file }) = authorities else {
            return Ok(Self { chain: None, in_file: Vec::new(), check, algorithms });
        };
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), Arc::clone(provider));
        let chain = chain.build().map_err(|error| ClientTlsError::Setup(error.to_string()))?;
        Ok(Self { chain: Some(chain), in_file, check, algorithms })
    }

    /// `true` if the chain was rejected only because the server presents a CA certificate, and that is in the file.
    /// rustls checks the validity period first; the name is checked here.
    fn accepts_authority(
        &self,
        shown: &CertificateDer<'_>,
        name: &ServerName<'_>,
        error: &CertificateError,
    ) -> Result<bool, TlsError> {
        let CertificateError::Other(reason) = error else { return Ok(false) };
        // The type of the reason belongs to a crate that rustls does not expose.
        let is_authority = format!("{reason:?}").contains("CaUsedAsEndEntity");
        if !is_authority || !self.in_file.iter().any(|trusted| trusted == shown) {
            return Ok(false);
        }
        if self.check == ServerCheck::ChainAndName {
            verify_server_name(&ParsedCertificate::try_from(shown)?, name)?;
        }
        Ok(true)
    }
}

impl ServerCertVerifier for ServerTrust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        let verified = chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let Err(TlsError::InvalidCertificate(error)) = &verified else { return verified };
        let is_name = matches!(
            error,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        );
        // rustls checks the name last: the chain is good.
        let is_name_unchecked = is_name && self.check == ServerCheck::Chain;
        if is_name_unchecked || self.accepts_authority(end_entity, server_name, error)? {
            return Ok(ServerCertVerified::assertion());
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
