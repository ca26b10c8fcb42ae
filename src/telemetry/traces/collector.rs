//! From an endpoint to a connection: DNS, TCP, TLS. One attempt; the deadline is the caller's.

use std::io;
use std::path::Path;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::endpoint::OtlpEndpoint;
use super::options::{OtlpProtocol, TracesOptions};
use crate::certificates::{PemError, PemFault, PemFile, ServerTrust};

/// Why there can be no connection by TLS.
#[derive(Debug, thiserror::Error)]
pub enum CollectorTlsError {
    #[error(transparent)]
    Pem(#[from] PemError),
    #[error("the system's trust store cannot be used: {0}")]
    SystemRoots(String),
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
    let (trusted, in_file) = match &options.ca_file {
        Some(path) => authorities(path)?,
        None => (system_authorities()?, Vec::new()),
    };
    // An explicit provider: with two providers among the dependencies, the process-wide default panics.
    let provider = Arc::new(ring::default_provider());
    let trust = ServerTrust::new(trusted, in_file, Arc::clone(&provider))
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

fn authorities(path: &Path) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), CollectorTlsError> {
    let file = PemFile::open(path)?;
    let mut trusted = RootCertStore::empty();
    let in_file = file.certificates()?;
    for certificate in &in_file {
        let added = trusted.add(certificate.clone());
        added.map_err(|error| file.error(PemFault::Unusable(error.to_string())))?;
    }
    Ok((trusted, in_file))
}

fn system_authorities() -> Result<RootCertStore, CollectorTlsError> {
    let mut trusted = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    let (added, _) = trusted.add_parsable_certificates(system.certs);
    if added == 0 {
        let why = system.errors.first().map_or("it is empty".to_owned(), ToString::to_string);
        return Err(CollectorTlsError::SystemRoots(why));
    }
    Ok(trusted)
}
