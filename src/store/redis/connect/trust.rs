//! Which certificate of a server is trusted.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};

use crate::store::redis::error::{OptionsError, certificate_unusable, tls_unusable};
use crate::store::redis::options::TlsOptions;

/// Checks the chain, and the name unless the options say otherwise. A certificate that is in the file of authorities
/// itself is trusted as the certificate of a server, too: many Redis servers have a self-signed one that is marked as
/// an authority, which rustls accepts only as an authority.
#[derive(Debug)]
pub(super) struct ServerTrust {
    chain: Arc<WebPkiServerVerifier>,
    in_file: Vec<CertificateDer<'static>>,
    skip_name: bool,
}

impl ServerTrust {
    pub(super) fn new(options: &TlsOptions, provider: Arc<CryptoProvider>) -> Result<Self, OptionsError> {
        let mut trusted = RootCertStore::empty();
        let in_file = match &options.ca_file {
            Some(path) => add_file(&mut trusted, path)?,
            None => Vec::new(),
        };
        if options.ca_file.is_none() {
            add_system(&mut trusted)?;
        } else if options.trust_system
            && let Err(error) = add_system(&mut trusted)
        {
            tracing::warn!(%error, "only the authorities of the file are trusted");
        }
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), provider);
        Ok(Self { chain: chain.build().map_err(tls_unusable)?, in_file, skip_name: options.skip_name })
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

fn add_file(trusted: &mut RootCertStore, path: &Path) -> Result<Vec<CertificateDer<'static>>, OptionsError> {
    let in_file = certificates(path)?;
    for certificate in &in_file {
        trusted.add(certificate.clone()).map_err(|error| certificate_unusable(path, error))?;
    }
    Ok(in_file)
}

fn add_system(trusted: &mut RootCertStore) -> Result<(), OptionsError> {
    let system = rustls_native_certs::load_native_certs();
    let (added, _) = trusted.add_parsable_certificates(system.certs);
    if added == 0 {
        let why = system.errors.first().map_or("it is empty".to_owned(), ToString::to_string);
        return Err(tls_unusable(format!("the system's trust store cannot be used: {why}")));
    }
    Ok(())
}

/// The certificates of a PEM file, at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OptionsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => Err(certificate_unusable(path, "it contains no certificate")),
        read => read.map_err(|error| certificate_unusable(path, error)),
    }
}
