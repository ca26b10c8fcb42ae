//! TLS of a client: from its settings and files to a connector.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base::FindFiles;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::file::PemFile;
use super::server_trust::{Authorities, ClientTlsError, ServerCheck, ServerTrust};
use super::{Protocol, crypto_provider, pair_error};

/// Which servers a client trusts, and what it presents to them. The default trusts the system's CAs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// PEM file of trusted CAs; `None`: the system's CAs.
    pub ca_file: Option<PathBuf>,
    /// `true`: also trust the system's CAs in addition to `ca_file`.
    pub trust_system: bool,
    /// PEM files of the client's certificate and key, for servers that require one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have; `None`: the host of the address.
    pub server_name: Option<ServerName<'static>>,
    pub check: ServerCheck,
}

/// Performs a client's TLS handshakes. Its files are already loaded.
#[derive(Clone)]
pub struct ClientConnector {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl FindFiles for ClientTls {
    type Notes = ();

    fn find_files(&self) -> (Vec<PathBuf>, ()) {
        let identity = self.identity.iter().flat_map(|(certificate, key)| [certificate, key]);
        (self.authorities_file().into_iter().chain(identity).cloned().collect(), ())
    }
}

impl ClientTls {
    /// Reads the files. Connections offer `protocol` by ALPN; `None`: no ALPN. Blocks on the file system.
    ///
    /// # Errors
    /// [`ClientTlsError`] for the first file that cannot be used, or if the system has no CAs.
    pub fn read_files(&self, protocol: Option<Protocol>) -> Result<ClientConnector, ClientTlsError> {
        let authorities = match self.authorities_file() {
            _ if self.check == ServerCheck::Nothing => None,
            None => Some(Authorities::of_system()?),
            Some(path) => {
                let mut authorities = Authorities::of_file(&PemFile::open(path)?)?;
                if self.trust_system {
                    authorities.add_system()?;
                }
                Some(authorities)
            }
        };
        let provider = crypto_provider();
        let trust = ServerTrust::new(authorities, self.check, &provider)?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ClientTlsError::Setup(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(trust));
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (certificate, key) = (PemFile::open(certificate)?, PemFile::open(key)?);
                builder
                    .with_client_auth_cert(certificate.certificates()?, key.private_key()?)
                    .map_err(|error| pair_error(&certificate, &key, &error))?
            }
        };
        // Servers written in Go reject a client that does not offer their protocol.
        config.alpn_protocols = protocol.iter().map(|protocol| protocol.name().to_vec()).collect();
        let connector = TlsConnector::from(Arc::new(config));
        Ok(ClientConnector { connector, server_name: self.server_name.clone() })
    }

    fn authorities_file(&self) -> Option<&PathBuf> {
        self.ca_file.as_ref().filter(|_| self.check != ServerCheck::Nothing)
    }
}

impl ClientConnector {
    /// Performs the handshake. The server's certificate must have the configured name, or else `host`.
    ///
    /// # Errors
    /// If `host` is not a valid name, the connection fails, or one side rejects the other.
    pub async fn handshake<S>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        self.connector.connect(name, stream).await
    }
}
