//! TLS by rustls: the trusted authorities and the client certificate. The files are read once per store:
//! renewed certificates need a restart.

use std::fmt;
use std::sync::Arc;

use engine::StoreError;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};

use super::trust::{certificates, server_trust};
use crate::redis::error::{
    OptionsError, certificate_unusable, handshake_failed, tls_unusable, unreachable_at,
};
use crate::redis::options::TlsOptions;

/// A TLS configuration whose files have been read.
pub(super) struct Tls {
    connector: TlsConnector,
    server_name: Option<ServerName<'static>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the certificates and the key.
    pub(super) fn new(options: &TlsOptions) -> Result<Self, OptionsError> {
        // An explicit provider: with two providers among the dependencies, the process-wide default panics.
        let provider = Arc::new(ring::default_provider());
        let trust = server_trust(options, Arc::clone(&provider))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(tls_unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(trust));
        let config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate)?;
                let key_der =
                    PrivateKeyDer::from_pem_file(key).map_err(|error| certificate_unusable(key, error))?;
                builder
                    .with_client_auth_cert(chain, key_der)
                    .map_err(|error| certificate_unusable(certificate, error))?
            }
        };
        let server_name = options.server_name.clone().map(|name| {
            ServerName::try_from(name.clone())
                .map_err(|error| tls_unusable(format!("server name {name:?}: {error}")))
        });
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), server_name: server_name.transpose()? })
    }

    /// Does the TLS handshake with the server.
    pub(super) async fn connect(
        &self,
        stream: TcpStream,
        host: &str,
    ) -> Result<TlsStream<TcpStream>, StoreError> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(unreachable_at(&host))?,
        };
        self.connector.connect(name, stream).await.map_err(|error| handshake_failed(host, error))
    }
}
