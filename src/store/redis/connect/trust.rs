//! The authorities that the options trust.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::certificates::ServerTrust;
use crate::store::redis::error::{OptionsError, certificate_unusable, tls_unusable};
use crate::store::redis::options::TlsOptions;

pub(super) fn server_trust(
    options: &TlsOptions,
    provider: Arc<CryptoProvider>,
) -> Result<ServerTrust, OptionsError> {
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
    let trust = ServerTrust::new(trusted, in_file, provider).map_err(tls_unusable)?;
    Ok(trust.with_name_skipped(options.skip_name))
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
