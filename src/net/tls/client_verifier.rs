//! Verifies the certificates of clients: by the authorities in a file, and by their names.

use std::sync::Arc;

use tls::CertificateFacts;
use tokio_rustls::rustls::client::danger::HandshakeSignatureValid;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme,
};

use super::client_name::ClientName;
use super::crypto::crypto_provider;

/// Requires a certificate of every client.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    chains: Arc<dyn ClientCertVerifier>,
    /// The certificates of the file of authorities.
    trusted: Vec<CertificateDer<'static>>,
    /// Empty: any name.
    names: Vec<ClientName>,
}

impl ClientVerifier {
    /// # Errors
    /// The reason why one of `trusted` cannot be an authority.
    pub(super) fn new(trusted: Vec<CertificateDer<'static>>, names: Vec<ClientName>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for authority in &trusted {
            roots.add(authority.clone()).map_err(|error| error.to_string())?;
        }
        let chains = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto_provider()).build();
        Ok(Self { chains: chains.map_err(|error| error.to_string())?, trusted, names })
    }

    fn check_name(&self, certificate: &CertificateFacts) -> Result<(), Error> {
        if self.names.is_empty() || self.names.iter().any(|name| name.fits(certificate)) {
            return Ok(());
        }
        // rustls derives the alert (bad_certificate) from this error; `expected` is for names of servers only.
        let expected = ServerName::try_from("client").map_err(|_| CertificateError::NotValidForName)?;
        let presented = vec![certificate.names()];
        Err(CertificateError::NotValidForNameContext { expected, presented }.into())
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let facts = || CertificateFacts::of_der(end_entity).map_err(|_| CertificateError::BadEncoding);
        // A certificate that is itself in the file is trusted, as in Go. webpki would refuse a self-signed one, which
        // is an authority, as the certificate of a client.
        if self.trusted.contains(end_entity) {
            if !facts()?.is_valid_at(now.as_secs()) {
                return Err(CertificateError::Expired.into());
            }
        } else {
            let verified = self.chains.verify_client_cert(end_entity, intermediates, now);
            verified.map_err(of_another_authority)?;
        }
        self.check_name(&facts()?)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// An authority that was made anew has its old name and another key. The signatures of the other one do not fit then,
/// which is no fault of the encryption.
fn of_another_authority(error: Error) -> Error {
    match error {
        Error::InvalidCertificate(CertificateError::BadSignature) => CertificateError::UnknownIssuer.into(),
        error => error,
    }
}
