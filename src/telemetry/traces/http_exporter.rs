//! Sends spans by HTTP/1.1. A connection takes one request: there are few of them.

use http::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;

use super::collector::Collector;
use super::options::OtlpHeaders;

/// An answer is a few bytes; a longer one is not read.
const MAX_ANSWER_BYTES: usize = 64 * 1_024;
const AGENT: &str = concat!("ratelimitd/", env!("CARGO_PKG_VERSION"));

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
pub(super) struct HttpExporter {
    collector: Collector,
    headers: HeaderMap,
}

impl HttpExporter {
    pub(super) fn new(collector: Collector, OtlpHeaders(mut headers): OtlpHeaders) -> Result<Self, BoxError> {
        headers.insert(HOST, HeaderValue::try_from(collector.endpoint.authority())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        Ok(Self { collector, headers })
    }

    /// # Errors
    /// When the collector does not take the spans.
    pub(super) async fn export(
        &self,
        spans: ExportTraceServiceRequest,
    ) -> Result<ExportTraceServiceResponse, BoxError> {
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
