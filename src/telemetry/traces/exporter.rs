//! Sends spans to a collector, over HTTP/1.1 or gRPC. The caller sets the deadline.

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
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::options::{OtlpEndpoint, OtlpHeaders, OtlpProtocol, TracesOptions};

/// Answers have a few bytes; a longer one is not read.
const MAX_ANSWER_BYTES: usize = 64 * 1_024;
const AGENT: &str = concat!("ratelimitd/", env!("CARGO_PKG_VERSION"));

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Sends spans in the configured protocol.
pub(super) struct Exporter {
    collector: Collector,
    headers: HeaderMap,
    /// `None`: HTTP/1.1. A connection takes one request: there are few of them.
    grpc: Option<GrpcClient>,
}

struct GrpcClient {
    endpoint: Endpoint,
    client: TraceServiceClient<Channel>,
}

#[derive(Clone)]
struct Collector {
    endpoint: OtlpEndpoint,
    /// `None`: clear text.
    tls: Option<ClientConnector>,
}

impl Exporter {
    /// Connects with the first spans.
    ///
    /// # Errors
    /// If the CAs of a collector with TLS are invalid.
    pub(super) fn new(options: &TracesOptions) -> Result<Self, ClientTlsError> {
        let collector = Collector::new(options)?;
        let OtlpHeaders(mut headers) = options.headers.clone();
        let unusable = |error: &dyn Display| ClientTlsError::Setup(error.to_string());
        let authority = collector.endpoint.authority();
        let grpc = match options.protocol {
            OtlpProtocol::Http => {
                let host = HeaderValue::try_from(authority).map_err(|error| unusable(&error))?;
                headers.insert(HOST, host);
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
                headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
                None
            }
            OtlpProtocol::Grpc => {
                let scheme = if collector.endpoint.has_tls { "https" } else { "http" };
                let origin: Uri = format!("{scheme}://{authority}").parse().unwrap_or_default();
                // Without the endpoint's scheme: TLS would be tonic's.
                let endpoint = Endpoint::from_shared(format!("http://{authority}"));
                let endpoint = endpoint.map_err(|error| unusable(&error))?.origin(origin);
                Some(GrpcClient { client: client(&endpoint, &collector), endpoint })
            }
        };
        Ok(Self { collector, headers, grpc })
    }

    /// # Errors
    /// Why the collector does not take the spans.
    pub(super) async fn export(
        &mut self,
        spans: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, String> {
        let Some(GrpcClient { client, .. }) = &mut self.grpc else {
            return self.post(spans).await.map_err(|error| error.to_string());
        };
        let mut request = tonic::Request::new(spans);
        *request.metadata_mut() = MetadataMap::from_headers(self.headers.clone());
        let answer = client.export(request).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| format!("{}: {}", status.code(), status.message()))
    }

    async fn post(&self, spans: ExportTraceServiceRequest) -> Result<ExportTraceServiceResponse, BoxError> {
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

    /// Drops the connection after an error: the next spans open a new one. The system can take a quarter of an hour to
    /// end a connection to a dead host, and a name may have another address by now.
    pub(super) fn reconnect(&mut self) {
        if let Some(GrpcClient { endpoint, client: used }) = &mut self.grpc {
            *used = client(endpoint, &self.collector);
        }
    }
}

fn client(endpoint: &Endpoint, collector: &Collector) -> TraceServiceClient<Channel> {
    let collector = collector.clone();
    let connector = service_fn(move |_: Uri| collector.clone().connect());
    TraceServiceClient::new(endpoint.connect_with_connector_lazy(connector))
}

impl Collector {
    /// Reads the CAs, if the endpoint has TLS.
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
