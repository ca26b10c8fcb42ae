//! Which certificate of a server is trusted.

use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, Error as TlsError, SignatureScheme};

use super::authorities::Authorities;

/// Checks the chain, and the name unless told otherwise. A certificate that is in the file of authorities itself is
/// trusted as the certificate of a server, too: many servers have a self-signed one that is marked as an authority,
/// which rustls accepts only as an authority.
#[derive(Debug)]
pub struct ServerTrust {
    chain: Arc<WebPkiServerVerifier>,
    in_file: Vec<CertificateDer<'static>>,
    skip_name: bool,
}

impl ServerTrust {
    /// Trusts `authorities`.
    ///
    /// # Errors
    /// When there are no authorities.
    pub fn new(
        authorities: Authorities,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let Authorities { trusted, in_file } = authorities;
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), provider).build()?;
        Ok(Self { chain, in_file, skip_name: false })
    }

    /// With `skip`, any name in the certificate is accepted.
    #[must_use]
    pub fn with_name_skipped(self, skip: bool) -> Self {
        Self { skip_name: skip, ..self }
    }

    /// Whether the chain was refused only because the server shows an authority, and that is in the file. rustls checks
    /// the time of validity first; its name is checked here.
    fn accepts_authority(
        &self,
        shown: &CertificateDer<'_>,
        name: &ServerName<'_>,
        error: &CertificateError,
    ) -> Result<bool, TlsError> {
        let CertificateError::Other(reason) = error else { return Ok(false) };
        // The type of the reason belongs to a crate that rustls does not show.
        let is_authority = format!("{reason:?}").contains("CaUsedAsEndEntity");
        if !is_authority || !self.in_file.iter().any(|trusted| trusted == shown) {
            return Ok(false);
        }
        if !self.skip_name {
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
        let verified =
            self.chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let Err(TlsError::InvalidCertificate(error)) = &verified else { return verified };
        let is_name = matches!(
            error,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        );
        // The name is checked last: the chain is good.
        if is_name && self.skip_name || self.accepts_authority(end_entity, server_name, error)? {
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
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
