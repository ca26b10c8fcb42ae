//! The authorities that the options trust.

use std::path::Path;
use std::sync::Arc;

use tls::{Authorities, ServerTrust};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

use crate::redis::error::{OptionsError, certificate_unusable, tls_unusable};
use crate::redis::options::TlsOptions;

pub(super) fn server_trust(
    options: &TlsOptions,
    provider: Arc<CryptoProvider>,
) -> Result<ServerTrust, OptionsError> {
    let authorities = match &options.ca_file {
        None => Authorities::of_system().map_err(tls_unusable)?,
        Some(path) => {
            let of_file = Authorities::of_certificates(certificates(path)?);
            let mut authorities = of_file.map_err(|error| certificate_unusable(path, error))?;
            if options.trust_system
                && let Err(error) = authorities.add_system()
            {
                tracing::warn!(%error, "only the authorities of the file are trusted");
            }
            authorities
        }
    };
    let trust = ServerTrust::new(authorities, provider).map_err(tls_unusable)?;
    Ok(trust.with_name_skipped(options.skip_name))
}

/// The certificates of a PEM file, at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OptionsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(chain) if chain.is_empty() => Err(certificate_unusable(path, "it contains no certificate")),
        read => read.map_err(|error| certificate_unusable(path, error)),
    }
}
