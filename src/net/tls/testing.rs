//! Certificates for unit tests, and a client that trusts them.

use std::path::Path;
use std::sync::Arc;

use rcgen::{CertifiedKey, KeyPair};
use tls::WatchedFiles;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{Connect, TlsConnector};

use super::crypto::crypto_provider;
use super::handshakes::HandshakeBounds;
use super::port_tls::PortTls;
use super::server_certificate::{LoadedTls, Protocol, ServerTls};
use crate::telemetry::metrics::{Metrics, Port};

const NAME: &str = "ratelimit.local";

/// A port with a certificate, its metrics, and a client.
pub(crate) struct TestPort {
    pub(crate) tls: PortTls,
    pub(crate) metrics: Metrics,
    client: Arc<ClientConfig>,
}

impl TestPort {
    /// Its handshakes are done on the current runtime.
    pub(crate) fn new(bounds: HandshakeBounds) -> Self {
        let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).expect("a certificate");
        let metrics = Metrics::new(800_000).expect("different names");
        let tls = PortTls::new(&loaded(&made), bounds, metrics.tls(Port::Grpc), Handle::current());
        Self { tls, metrics, client: Arc::new(client(made.cert.der())) }
    }

    /// The handshake of the client.
    pub(crate) fn connect<IO>(&self, stream: IO) -> Connect<IO>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let name = ServerName::try_from(NAME).expect("a name");
        TlsConnector::from(Arc::clone(&self.client)).connect(name, stream)
    }

    pub(crate) fn handshakes(&self, result: &str) -> u64 {
        let series = format!("ratelimitd_tls_handshakes_total{{port=\"grpc\",result=\"{result}\"}} ");
        let text = self.metrics.render().expect("metrics");
        let count = text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok());
        count.expect("the series exists")
    }
}

fn loaded(made: &CertifiedKey<KeyPair>) -> LoadedTls {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, pem: String| {
        std::fs::write(folder.path().join(name), pem).expect("room for a file");
        folder.path().join(Path::new(name))
    };
    let settings = ServerTls {
        cert_file: write("tls.crt", made.cert.pem()),
        key_file: write("tls.key", made.signing_key.serialize_pem()),
        client_ca_file: None,
        client_names: Vec::new(),
    };
    let (_, contents) = WatchedFiles::open(settings.paths());
    settings.load(contents, Protocol::Http2).expect("a pair")
}

fn client(authority: &CertificateDer<'static>) -> ClientConfig {
    let mut trusted = RootCertStore::empty();
    trusted.add(authority.clone()).expect("an authority");
    ClientConfig::builder_with_provider(crypto_provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(trusted)
        .with_no_client_auth()
}
