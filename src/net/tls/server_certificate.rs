//! The files of a port with TLS, and the rustls configuration that is made of their contents.

use std::path::PathBuf;
use std::sync::Arc;

use tls::{CertificateFacts, PemError, PemFault, PemFile};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::{Error, InconsistentKeys, ServerConfig};

use super::client_name::ClientName;
use super::client_verifier::ClientVerifier;
use super::crypto::crypto_provider;

/// The TLS settings of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    /// If set, every client must have a certificate of one of its authorities.
    pub client_ca_file: Option<PathBuf>,
    /// If not empty, the certificate of a client must have one of these names. No effect without `client_ca_file`.
    pub client_names: Vec<ClientName>,
}

/// What a port speaks over TLS (ALPN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// The last part of the name of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFileSetting {
    CertFile,
    KeyFile,
    ClientCaFile,
}

/// Why the files cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct TlsFileError {
    /// The setting that names the file.
    pub setting: TlsFileSetting,
    pub cause: PemError,
}

/// Files that were read and fit together.
#[derive(Clone, Debug)]
pub struct LoadedTls {
    pub(super) config: Arc<ServerConfig>,
    /// The first certificate of `cert_file`.
    pub certificate: CertificateFacts,
    /// Those of `client_ca_file`.
    pub authorities: Vec<CertificateFacts>,
}

impl TlsFileSetting {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CertFile => "cert_file",
            Self::KeyFile => "key_file",
            Self::ClientCaFile => "client_ca_file",
        }
    }
}

impl ServerTls {
    /// The files, in the order that [`Self::load`] expects.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let authorities = self.client_ca_file.clone();
        [self.cert_file.clone(), self.key_file.clone()].into_iter().chain(authorities).collect()
    }

    /// Makes the configuration of a port of the contents of the [files](Self::paths).
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn load(
        &self,
        contents: Vec<Result<PemFile, PemError>>,
        protocol: Protocol,
    ) -> Result<LoadedTls, TlsFileError> {
        use TlsFileSetting::{CertFile, ClientCaFile, KeyFile};
        let mut contents = contents.into_iter();
        let mut next = |setting: TlsFileSetting, path: &PathBuf| {
            let missing =
                || PemError { path: path.clone(), fault: PemFault::Unreadable("not read".to_owned()) };
            contents.next().unwrap_or_else(|| Err(missing())).map_err(|cause| TlsFileError { setting, cause })
        };
        let cert_file = next(CertFile, &self.cert_file)?;
        let key_file = next(KeyFile, &self.key_file)?;
        let ca_file = self.client_ca_file.as_ref().map(|path| next(ClientCaFile, path)).transpose()?;

        let chain = cert_file.certificates().map_err(|cause| TlsFileError { setting: CertFile, cause })?;
        let key = key_file.private_key().map_err(|cause| TlsFileError { setting: KeyFile, cause })?;
        let certificate = facts_of(&cert_file, &chain[0], CertFile)?;
        let builder =
            ServerConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| unusable(&cert_file, CertFile, &error))?;
        let (builder, authorities) = match &ca_file {
            None => (builder.with_no_client_auth(), Vec::new()),
            Some(file) => {
                let trusted =
                    file.certificates().map_err(|cause| TlsFileError { setting: ClientCaFile, cause })?;
                let facts = trusted.iter().map(|authority| facts_of(file, authority, ClientCaFile));
                let facts = facts.collect::<Result<Vec<_>, _>>()?;
                let verifier = ClientVerifier::new(trusted, self.client_names.clone())
                    .map_err(|reason| unusable(file, ClientCaFile, &reason))?;
                (builder.with_client_cert_verifier(Arc::new(verifier)), facts)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let other = cert_file.path().display();
                unusable(&key_file, KeyFile, &format_args!("it is not the key of the certificate in {other}"))
            }
            error @ Error::InvalidCertificate(_) => unusable(&cert_file, CertFile, &error),
            error => unusable(&key_file, KeyFile, &error),
        })?;
        config.alpn_protocols = vec![protocol.name().to_vec()];
        // No session is resumed: clients keep their connections, and a certificate of a client that was once accepted
        // would stay accepted after it or its authority has expired or was replaced.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_tls13_tickets = 0;
        Ok(LoadedTls { config: Arc::new(config), certificate, authorities })
    }
}

impl LoadedTls {
    /// When the first of the authorities expires, in seconds since the Unix epoch.
    #[must_use]
    pub fn authorities_not_after_s(&self) -> Option<i64> {
        self.authorities.iter().map(|authority| authority.not_after_s).min()
    }
}

impl Protocol {
    /// The identifier of ALPN.
    fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

fn unusable(file: &PemFile, setting: TlsFileSetting, reason: &dyn ToString) -> TlsFileError {
    TlsFileError { setting, cause: file.error(PemFault::Unusable(reason.to_string())) }
}

fn facts_of(
    file: &PemFile,
    certificate: &CertificateDer<'_>,
    setting: TlsFileSetting,
) -> Result<CertificateFacts, TlsFileError> {
    CertificateFacts::of_der(certificate).map_err(|error| unusable(file, setting, &error))
}
