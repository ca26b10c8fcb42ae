//! TLS of a port: from its settings and files to a rustls configuration.

use std::path::PathBuf;
use std::sync::Arc;

use base::FindFiles;
use strum::IntoStaticStr;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::NoServerSessionStorage;

use super::client_verifier::{ClientName, ClientVerifier};
use super::facts::CertificateFacts;
use super::file::{FileError, PemFile};
use super::{Protocol, crypto_provider, pair_error};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    /// If set, every client needs a certificate signed by one of these CAs.
    pub client_ca_file: Option<PathBuf>,
    /// If not empty, a client certificate must have one of these names. No effect without `client_ca_file`.
    pub client_names: Vec<ClientName>,
}

/// The last part of the setting's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum TlsFileSetting {
    CertFile,
    KeyFile,
    ClientCaFile,
}

/// Why the files cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct TlsFileError {
    pub setting: TlsFileSetting,
    pub cause: FileError,
}

/// Files that were loaded and belong together.
#[derive(Clone, Debug)]
pub struct LoadedTls {
    pub config: Arc<ServerConfig>,
    /// The first certificate of `cert_file`.
    pub certificate: CertificateFacts,
    /// The certificates of `client_ca_file`.
    pub authorities: Vec<CertificateFacts>,
}

impl TlsFileSetting {
    /// Adds this setting to an error of its file.
    fn fault(self) -> impl Fn(FileError) -> TlsFileError {
        move |cause| TlsFileError { setting: self, cause }
    }
}

impl FindFiles for ServerTls {
    type Notes = ();

    fn find_files(&self) -> (Vec<PathBuf>, ()) {
        let authorities = self.client_ca_file.clone();
        ([self.cert_file.clone(), self.key_file.clone()].into_iter().chain(authorities).collect(), ())
    }
}

impl ServerTls {
    /// Reads the files and builds the port's configuration. Blocks on the file system.
    ///
    /// # Errors
    /// For the first file that cannot be used.
    pub fn load(&self, protocol: Protocol) -> Result<LoadedTls, TlsFileError> {
        use TlsFileSetting::{CertFile, ClientCaFile, KeyFile};
        let open = |setting: TlsFileSetting, path| PemFile::open(path).map_err(setting.fault());
        let cert_file = open(CertFile, &self.cert_file)?;
        let key_file = open(KeyFile, &self.key_file)?;
        let ca_file = self.client_ca_file.as_ref().map(|path| open(ClientCaFile, path)).transpose()?;

        let chain = cert_file.certificates().map_err(CertFile.fault())?;
        let key = key_file.private_key().map_err(KeyFile.fault())?;
        let certificate = facts_of(&cert_file, &chain[0]).map_err(CertFile.fault())?;
        let builder =
            ServerConfig::builder_with_provider(crypto_provider()).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| CertFile.fault()(cert_file.unusable(error)))?;
        let (builder, authorities) = match &ca_file {
            None => (builder.with_no_client_auth(), Vec::new()),
            Some(file) => {
                let trusted = file.certificates().map_err(ClientCaFile.fault())?;
                let facts: Result<Vec<_>, _> =
                    trusted.iter().map(|authority| facts_of(file, authority)).collect();
                let facts = facts.map_err(ClientCaFile.fault())?;
                let verifier = ClientVerifier::new(trusted, self.client_names.clone())
                    .map_err(|reason| ClientCaFile.fault()(file.unusable(reason)))?;
                (builder.with_client_cert_verifier(Arc::new(verifier)), facts)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            let cause = pair_error(&cert_file, &key_file, &error);
            let setting = if cause.path == self.cert_file { CertFile } else { KeyFile };
            TlsFileError { setting, cause }
        })?;
        config.alpn_protocols = vec![protocol.name().to_vec()];
        // No session resumption: clients keep their connections, and resumption would keep accepting a client
        // certificate after it or its CA has expired or been replaced.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_tls13_tickets = 0;
        Ok(LoadedTls { config: Arc::new(config), certificate, authorities })
    }
}

impl LoadedTls {
    /// When the first CA expires, in seconds since the Unix epoch.
    pub fn authorities_not_after_s(&self) -> Option<i64> {
        self.authorities.iter().map(|authority| authority.not_after_s).min()
    }
}

fn facts_of(file: &PemFile, certificate: &CertificateDer<'_>) -> Result<CertificateFacts, FileError> {
    CertificateFacts::of_der(certificate).map_err(|error| file.unusable(error))
}
