//! Sends spans by gRPC.

use http::Uri;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tower::service_fn;

use super::collector::Collector;
use super::options::OtlpHeaders;

pub(super) struct GrpcExporter {
    collector: Collector,
    endpoint: Endpoint,
    client: TraceServiceClient<Channel>,
    metadata: MetadataMap,
}

impl GrpcExporter {
    /// Connects with the first spans.
    ///
    /// # Errors
    /// When the endpoint is no URI.
    pub(super) fn new(
        collector: Collector,
        OtlpHeaders(headers): OtlpHeaders,
    ) -> Result<Self, tonic::transport::Error> {
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
    pub(super) fn reconnect(&mut self) {
        self.client = client(&self.endpoint, &self.collector);
    }

    /// # Errors
    /// When the collector does not take the spans.
    pub(super) async fn export(
        &mut self,
        spans: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, Status> {
        let mut request = Request::new(spans);
        *request.metadata_mut() = self.metadata.clone();
        Ok(self.client.export(request).await?.into_inner())
    }
}

fn client(endpoint: &Endpoint, collector: &Collector) -> TraceServiceClient<Channel> {
    let collector = collector.clone();
    let connector = service_fn(move |_: Uri| collector.clone().connect());
    TraceServiceClient::new(endpoint.connect_with_connector_lazy(connector))
}
