//! From an endpoint to a connection: DNS, TCP, TLS. One attempt; the deadline is the caller's.

use std::io;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tls::{Authorities, PemError, PemFile, ServerTrust, SystemAuthoritiesError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::ring;

use super::endpoint::OtlpEndpoint;
use super::options::{OtlpProtocol, TracesOptions};

/// Why there can be no connection by TLS.
#[derive(Debug, thiserror::Error)]
pub enum CollectorTlsError {
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error(transparent)]
    System(#[from] SystemAuthoritiesError),
    #[error("TLS cannot be set up: {0}")]
    Config(String),
}

/// A collector, and how to connect to it.
#[derive(Clone)]
pub(super) struct Collector {
    pub(super) endpoint: OtlpEndpoint,
    /// `None` is clear text.
    tls: Option<TlsConnector>,
}

/// Clear text or TLS.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

impl Collector {
    /// Reads the authorities, if the endpoint has TLS.
    pub(super) fn new(options: &TracesOptions) -> Result<Self, CollectorTlsError> {
        let endpoint = options.endpoint.clone();
        let tls = endpoint.has_tls.then(|| connector(options)).transpose()?;
        Ok(Self { endpoint, tls })
    }

    pub(super) async fn connect(self) -> io::Result<TokioIo<Box<dyn ByteStream>>> {
        let OtlpEndpoint { host, port, .. } = &self.endpoint;
        let stream = dial(&host.to_str(), *port).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn ByteStream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.connect(host.clone(), stream).await?),
        };
        Ok(TokioIo::new(stream))
    }
}

/// Tries the addresses of the host in turn.
async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host((host, port)).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn connector(options: &TracesOptions) -> Result<TlsConnector, CollectorTlsError> {
    let authorities = match &options.ca_file {
        Some(path) => Authorities::of_file(&PemFile::open(path)?)?,
        None => Authorities::of_system()?,
    };
    // An explicit provider: with two providers among the dependencies, the process-wide default panics.
    let provider = Arc::new(ring::default_provider());
    let trust = ServerTrust::new(authorities, Arc::clone(&provider))
        .map_err(|error| CollectorTlsError::Config(error.to_string()))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| CollectorTlsError::Config(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(trust))
        .with_no_client_auth();
    config.alpn_protocols = match options.protocol {
        OtlpProtocol::Http => vec![b"http/1.1".to_vec()],
        OtlpProtocol::Grpc => vec![b"h2".to_vec()],
    };
    Ok(TlsConnector::from(Arc::new(config)))
}
