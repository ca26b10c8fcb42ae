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

#[derive(Clone)]
pub(super) struct GrpcExporter {
    client: TraceServiceClient<Channel>,
    metadata: MetadataMap,
}

impl GrpcExporter {
    /// Connects with the first spans, and again after an error.
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
        let channel =
            endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| collector.clone().connect()));
        Ok(Self { client: TraceServiceClient::new(channel), metadata: MetadataMap::from_headers(headers) })
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
