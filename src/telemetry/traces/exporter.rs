//! Sends spans to a collector, over HTTP/1.1 or gRPC. The caller sets the deadline.

use std::fmt::Display;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Uri};
use hyper::body::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;
use tls::{ClientConnector, ClientTls, ClientTlsError, Protocol};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::options::{OtlpHeaders, OtlpProtocol, TracesOptions};
use crate::post::{BoxError, HttpTarget};

/// Sends spans in the configured protocol.
pub(super) struct Exporter {
    collector: Collector,
    headers: HeaderMap,
    /// `None`: HTTP/1.1.
    grpc: Option<GrpcClient>,
}

struct GrpcClient {
    endpoint: Endpoint,
    client: TraceServiceClient<Channel>,
}

#[derive(Clone)]
struct Collector {
    endpoint: HttpTarget,
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
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
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
        let Collector { endpoint, tls } = &self.collector;
        let body = Bytes::from(spans.encode_to_vec());
        let answer = endpoint.post(tls.as_ref(), self.headers.clone(), body).await?;
        if !answer.status().is_success() {
            return Err(BoxError::from(format!("the collector answers {}", answer.status())));
        }
        Ok(ExportTraceServiceResponse::decode(answer.into_body()?)?)
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
    let connector = service_fn(move |_: Uri| {
        let Collector { endpoint, tls } = collector.clone();
        async move { endpoint.connect(tls.as_ref()).await }
    });
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
}
