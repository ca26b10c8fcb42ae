//! TLS of a client: from its settings and its files to a connector.

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

/// Which servers a client trusts, and what it shows them. The default trusts the authorities of the system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// PEM file of the trusted authorities; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// Whether the authorities of the system are trusted beside those of `ca_file`.
    pub trust_system: bool,
    /// PEM files of the client's certificate and its key, for servers that require one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have; `None` for the host of the address.
    pub server_name: Option<ServerName<'static>>,
    pub check: ServerCheck,
}

/// Does the TLS handshakes of a client. Its files have been read.
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
    /// Reads the files. Connections speak `protocol`; `None`: they do not ask for one by ALPN. Blocks as long as the
    /// file system does.
    ///
    /// # Errors
    /// [`ClientTlsError`]: the first file that cannot be used, or that the system has no authorities.
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
        // Servers in Go refuse a client that does not ask for their protocol.
        config.alpn_protocols = protocol.iter().map(|protocol| protocol.name().to_vec()).collect();
        let connector = TlsConnector::from(Arc::new(config));
        Ok(ClientConnector { connector, server_name: self.server_name.clone() })
    }

    fn authorities_file(&self) -> Option<&PathBuf> {
        self.ca_file.as_ref().filter(|_| self.check != ServerCheck::Nothing)
    }
}

impl ClientConnector {
    /// Does the handshake with a server whose certificate must have the name of the settings, or else `host`.
    ///
    /// # Errors
    /// When `host` is no name of a host, the connection fails, or one side does not accept the other.
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
