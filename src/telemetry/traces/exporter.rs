//! Sends spans to a collector: by HTTP/1.1, or by gRPC. The deadline is the caller's.

use std::fmt::Display;

use http::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;
use tls::{ByteStream, ClientConnector, ClientTls, ClientTlsError, DialError, Protocol, dial};
use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::options::{OtlpEndpoint, OtlpHeaders, OtlpProtocol, TracesOptions};

/// An answer is a few bytes; a longer one is not read.
const MAX_ANSWER_BYTES: usize = 64 * 1_024;
const AGENT: &str = concat!("ratelimitd/", env!("CARGO_PKG_VERSION"));

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Sends spans in the protocol of the settings.
pub(super) enum Exporter {
    Http(HttpExporter),
    Grpc(Box<GrpcExporter>),
}

/// Sends spans by HTTP/1.1. A connection takes one request: there are few of them.
pub(super) struct HttpExporter {
    collector: Collector,
    headers: HeaderMap,
}

pub(super) struct GrpcExporter {
    collector: Collector,
    endpoint: Endpoint,
    client: TraceServiceClient<Channel>,
    metadata: MetadataMap,
}

/// A collector, and how to connect to it.
#[derive(Clone)]
struct Collector {
    endpoint: OtlpEndpoint,
    /// `None` is clear text.
    tls: Option<ClientConnector>,
}

impl Exporter {
    /// Connects with the first spans.
    ///
    /// # Errors
    /// When the authorities of a collector with TLS cannot be used.
    pub(super) fn new(options: &TracesOptions) -> Result<Self, ClientTlsError> {
        let collector = Collector::new(options)?;
        let headers = options.headers.clone();
        let unusable = |error: &dyn Display| ClientTlsError::Setup(error.to_string());
        Ok(match options.protocol {
            OtlpProtocol::Http => {
                Self::Http(HttpExporter::new(collector, headers).map_err(|error| unusable(&error))?)
            }
            OtlpProtocol::Grpc => {
                Self::Grpc(Box::new(GrpcExporter::new(collector, headers).map_err(|error| unusable(&error))?))
            }
        })
    }

    /// # Errors
    /// Why the collector does not take the spans.
    pub(super) async fn export(
        &mut self,
        request: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, String> {
        match self {
            Self::Http(exporter) => exporter.export(request).await.map_err(|error| error.to_string()),
            Self::Grpc(exporter) => exporter
                .export(request)
                .await
                .map_err(|status| format!("{}: {}", status.code(), status.message())),
        }
    }

    /// Uses no connection from before an error.
    pub(super) fn reconnect(&mut self) {
        match self {
            // Each request has a connection of its own.
            Self::Http(_) => {}
            Self::Grpc(exporter) => exporter.reconnect(),
        }
    }
}

impl HttpExporter {
    fn new(collector: Collector, OtlpHeaders(mut headers): OtlpHeaders) -> Result<Self, BoxError> {
        headers.insert(HOST, HeaderValue::try_from(collector.endpoint.authority())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        Ok(Self { collector, headers })
    }

    /// # Errors
    /// When the collector does not take the spans.
    async fn export(&self, spans: ExportTraceServiceRequest) -> Result<ExportTraceServiceResponse, BoxError> {
        let mut request = Request::new(Full::new(Bytes::from(spans.encode_to_vec())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.collector.endpoint.path.parse()?;
        *request.headers_mut() = self.headers.clone();
        let (mut sender, connection) = http1::handshake(self.collector.clone().connect().await?).await?;
        let exchange = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect().await?.to_bytes();
            if !status.is_success() {
                return Err(BoxError::from(format!("the collector answers {status}")));
            }
            Ok(ExportTraceServiceResponse::decode(body)?)
        };
        // The connection ends after the exchange, which has its result, or its errors.
        let (exchanged, _) = tokio::join!(exchange, connection);
        exchanged
    }
}

impl GrpcExporter {
    /// Connects with the first spans.
    ///
    /// # Errors
    /// When the endpoint is no URI.
    fn new(collector: Collector, OtlpHeaders(headers): OtlpHeaders) -> Result<Self, tonic::transport::Error> {
        let authority = collector.endpoint.authority();
        let scheme = if collector.endpoint.has_tls { "https" } else { "http" };
        let origin: Uri = format!("{scheme}://{authority}").parse().unwrap_or_default();
        // The scheme of the endpoint is not sent: its TLS would be tonic's.
        let endpoint = Endpoint::from_shared(format!("http://{authority}"))?.origin(origin);
        let client = client(&endpoint, &collector);
        Ok(Self { collector, endpoint, client, metadata: MetadataMap::from_headers(headers) })
    }

    /// Connects again with the next spans. The system may take a quarter of an hour to end a connection to a host that
    /// is gone, and a name may have another address by now.
    fn reconnect(&mut self) {
        self.client = client(&self.endpoint, &self.collector);
    }

    /// # Errors
    /// When the collector does not take the spans.
    async fn export(
        &mut self,
        spans: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, Status> {
        let mut request = tonic::Request::new(spans);
        *request.metadata_mut() = self.metadata.clone();
        Ok(self.client.export(request).await?.into_inner())
    }
}

fn client(endpoint: &Endpoint, collector: &Collector) -> TraceServiceClient<Channel> {
    let collector = collector.clone();
    let connector = service_fn(move |_: Uri| collector.clone().connect());
    TraceServiceClient::new(endpoint.connect_with_connector_lazy(connector))
}

impl Collector {
    /// Reads the authorities, if the endpoint has TLS.
    fn new(options: &TracesOptions) -> Result<Self, ClientTlsError> {
        let endpoint = options.endpoint.clone();
        let protocol = match options.protocol {
            OtlpProtocol::Http => Protocol::Http1,
            OtlpProtocol::Grpc => Protocol::Http2,
        };
        let tls = ClientTls { ca_file: options.ca_file.clone(), ..ClientTls::default() };
        let tls = endpoint.has_tls.then(|| tls.read_files(Some(protocol))).transpose()?;
        Ok(Self { endpoint, tls })
    }

    async fn connect(self) -> Result<TokioIo<Box<dyn ByteStream>>, DialError> {
        let OtlpEndpoint { host, port, .. } = &self.endpoint;
        dial(&host.to_str(), *port, self.tls.as_ref()).await.map(TokioIo::new)
    }
}
