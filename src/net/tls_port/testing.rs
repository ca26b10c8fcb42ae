//! Certificates for unit tests, and a client that trusts them.

use std::io;

use tls::{ClientConnector, ClientTls, LoadedTls, Protocol, ServerTls};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio_rustls::client::TlsStream;

use super::port_tls::PortTls;
use crate::net::ConnectionBounds;
use crate::telemetry::metrics::{Metrics, Port};

const NAME: &str = "ratelimit.local";

/// A port with a certificate, its metrics, and a client.
pub(crate) struct TestPort {
    pub(crate) tls: PortTls,
    pub(crate) metrics: Metrics,
    client: ClientConnector,
}

impl TestPort {
    /// Does its handshakes on the current runtime.
    pub(crate) fn new(bounds: ConnectionBounds) -> Self {
        let metrics = Metrics::new(800_000).expect("different names");
        let (loaded, client) = ends();
        let tls = PortTls::new(&loaded, bounds, metrics.tls(Port::Grpc), Handle::current());
        Self { tls, metrics, client }
    }

    /// The client's handshake.
    pub(crate) async fn connect<IO>(&self, stream: IO) -> io::Result<TlsStream<IO>>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        self.client.handshake(NAME, stream).await
    }

    pub(crate) fn handshakes(&self, result: &str) -> u64 {
        let series = format!("ratelimitd_tls_handshakes_total{{port=\"grpc\",result=\"{result}\"}} ");
        let text = self.metrics.render().expect("metrics");
        let count = text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok());
        count.expect("the series exists")
    }
}

/// A new certificate for a port, and a client that trusts it.
fn ends() -> (LoadedTls, ClientConnector) {
    let made = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, pem: String| {
        std::fs::write(folder.path().join(name), pem).expect("room for a file");
        folder.path().join(name)
    };
    let port = ServerTls {
        cert_file: write("tls.crt", made.cert.pem()),
        key_file: write("tls.key", made.signing_key.serialize_pem()),
        client_ca_file: None,
        client_names: Vec::new(),
    };
    let client = ClientTls { ca_file: Some(port.cert_file.clone()), ..ClientTls::default() };
    (port.load(Protocol::Http2).expect("a pair"), client.read_files(None).expect("an authority"))
}
