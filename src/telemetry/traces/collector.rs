//! A collector, and how to connect to it. One attempt; the deadline is the caller's.

use hyper_util::rt::TokioIo;
use tls::{ByteStream, ClientConnector, ClientTls, ClientTlsError, DialError, Protocol, dial};

use super::endpoint::OtlpEndpoint;
use super::options::{OtlpProtocol, TracesOptions};

#[derive(Clone)]
pub(super) struct Collector {
    pub(super) endpoint: OtlpEndpoint,
    /// `None` is clear text.
    tls: Option<ClientConnector>,
}

impl Collector {
    /// Reads the authorities, if the endpoint has TLS.
    pub(super) fn new(options: &TracesOptions) -> Result<Self, ClientTlsError> {
        let endpoint = options.endpoint.clone();
        let protocol = match options.protocol {
            OtlpProtocol::Http => Protocol::Http1,
            OtlpProtocol::Grpc => Protocol::Http2,
        };
        let tls = ClientTls { ca_file: options.ca_file.clone(), ..ClientTls::default() };
        let tls = endpoint.has_tls.then(|| tls.read(Some(protocol))).transpose()?;
        Ok(Self { endpoint, tls })
    }

    pub(super) async fn connect(self) -> Result<TokioIo<Box<dyn ByteStream>>, DialError> {
        let OtlpEndpoint { host, port, .. } = &self.endpoint;
        dial(&host.to_str(), *port, self.tls.as_ref()).await.map(TokioIo::new)
    }
}
