//! Connections of the sub-commands to a running service: clear text for `http://`, TLS for `https://`.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use clap::Args;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tls::{Authorities, PemError, PemFile, ServerTrust, SystemAuthoritiesError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::client::VerifierBuilderError;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::either::Either;

use super::any_certificate::AnyCertificate;

/// How an `https://` address is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct TlsArgs {
    /// For https: the trusted certificate authorities (PEM), instead of the system's
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// For https: the certificate to show (PEM), if the service asks for one
    #[arg(long, value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,

    /// For https: the key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,

    /// For https: the name in the certificate of the service, if it is not the host of the address
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
}

/// Which certificates of a service are trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    System,
    /// Those of the authorities in this file.
    File(PathBuf),
    /// Every certificate, as the probes of Kubernetes do: for a call to this host that sends nothing secret.
    Any,
}

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    #[error("{0}")]
    File(#[from] PemError),
    #[error("{}: {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
    #[error("--server-name {0}: not a host name or an address")]
    ServerName(String),
    #[error("{0}; name a file with --ca-file")]
    System(#[from] SystemAuthoritiesError),
    #[error("TLS: {0}")]
    Trust(#[from] VerifierBuilderError),
    #[error("TLS: {0}")]
    Rustls(#[from] tokio_rustls::rustls::Error),
    #[error("--ca-file, --cert-file, --key-file and --server-name need an address that begins with https://")]
    ClearText,
}

/// Connects to a service.
#[derive(Clone)]
pub(crate) struct ServiceConnector {
    /// `None`: clear text.
    tls: Option<(TlsConnector, Option<ServerName<'static>>)>,
}

/// A connection of either kind.
pub(crate) struct ServiceConnection(Either<TcpStream, TlsStream<TcpStream>>);

impl TlsArgs {
    /// The connector of `address`, whose connections speak `protocol` (ALPN).
    ///
    /// # Errors
    /// When a file cannot be used, or the options do not fit the address.
    pub(crate) fn connector(
        &self,
        address: &Uri,
        protocol: &[u8],
    ) -> Result<ServiceConnector, TlsSetupError> {
        let trust = self.ca_file.clone().map_or(Trust::System, Trust::File);
        self.connector_with(address, protocol, &trust)
    }

    pub(crate) fn connector_with(
        &self,
        address: &Uri,
        protocol: &[u8],
        trust: &Trust,
    ) -> Result<ServiceConnector, TlsSetupError> {
        if address.scheme_str() != Some("https") {
            return if *self == Self::default() {
                Ok(ServiceConnector { tls: None })
            } else {
                Err(TlsSetupError::ClearText)
            };
        }
        let identity = self.cert_file.as_deref().zip(self.key_file.as_deref());
        let mut config = client_config(trust, identity)?;
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = |name: &String| {
            ServerName::try_from(name.clone()).map_err(|_| TlsSetupError::ServerName(name.clone()))
        };
        let server_name = self.server_name.as_ref().map(name).transpose()?;
        Ok(ServiceConnector { tls: Some((TlsConnector::from(Arc::new(config)), server_name)) })
    }
}

fn client_config(trust: &Trust, identity: Option<(&Path, &Path)>) -> Result<ClientConfig, TlsSetupError> {
    let provider = Arc::new(ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::System => Arc::new(ServerTrust::new(Authorities::of_system()?, Arc::clone(&provider))?),
        Trust::File(path) => {
            let authorities = Authorities::of_file(&PemFile::open(path)?)?;
            Arc::new(ServerTrust::new(authorities, Arc::clone(&provider))?)
        }
        Trust::Any => Arc::new(AnyCertificate(provider.signature_verification_algorithms)),
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some((cert_file, key_file)) => {
            let (chain, key) =
                (PemFile::open(cert_file)?.certificates()?, PemFile::open(key_file)?.private_key()?);
            builder.with_client_auth_cert(chain, key).map_err(|error| unusable(key_file, &error))
        }
    }
}

fn unusable(path: &Path, error: &impl ToString) -> TlsSetupError {
    TlsSetupError::Unusable { path: path.to_owned(), reason: error.to_string() }
}

impl ServiceConnector {
    /// Connects to the host of `address`. Has no deadline of its own.
    pub(crate) async fn connect(self, address: Uri) -> io::Result<TokioIo<ServiceConnection>> {
        let host = address.host().unwrap_or_default();
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let default_port = if self.tls.is_some() { 443 } else { 80 };
        let stream = TcpStream::connect((host, address.port_u16().unwrap_or(default_port))).await?;
        stream.set_nodelay(true)?;
        let stream = match self.tls {
            None => Either::Left(stream),
            Some((connector, server_name)) => {
                let host_name = || ServerName::try_from(host.to_owned()).map_err(io::Error::other);
                let name = server_name.map_or_else(host_name, Ok)?;
                Either::Right(connector.connect(name, stream).await?)
            }
        };
        Ok(TokioIo::new(ServiceConnection(stream)))
    }
}

impl Connection for ServiceConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for ServiceConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for ServiceConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
