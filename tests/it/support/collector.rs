//! A collector of OTLP, by HTTP and by gRPC on one port. Its messages are written down here from the protocol, and
//! attributes come from the crate `envoy-types`: none come from the crate that the service sends with.
#![expect(clippy::disallowed_methods, reason = "the collector serves until the test ends")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request as HttpRequest, State};
use axum::routing::post;
use envoy_types::pb::opentelemetry::proto::common::v1::any_value::Value;
use envoy_types::pb::opentelemetry::proto::common::v1::{InstrumentationScope, KeyValue};
use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, ready};
use http::{HeaderMap, StatusCode};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::server::UnaryService;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::cut_stream::{ByteStream, CutStream};

/// `opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest`
#[derive(Clone, PartialEq, Message)]
pub struct Export {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// `ExportTraceServiceResponse`
#[derive(Clone, PartialEq, Message)]
pub struct Exported {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<SpanStatus>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SpanStatus {
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// Attributes as texts.
pub fn attributes(pairs: &[KeyValue]) -> BTreeMap<&str, String> {
    let text = |value: &Value| match value {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => panic!("not expected: {other:?}"),
    };
    let value = |pair: &KeyValue| pair.value.as_ref().and_then(|any| any.value.as_ref()).map(text);
    pairs.iter().map(|pair| (pair.key.as_str(), value(pair).expect("a value"))).collect()
}

#[derive(Default)]
struct Received {
    exports: Mutex<Vec<Export>>,
    /// The headers of each request.
    headers: Mutex<Vec<HeaderMap>>,
    /// What every answer refuses.
    rejected_spans: i64,
}

/// Ends when it is dropped.
pub struct Collector {
    received: Arc<Received>,
    pub port: u16,
    serving: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Collector {
    /// In clear text. Takes all spans.
    pub async fn start() -> Self {
        Self::start_with(None, 0).await
    }

    /// With TLS, if there is an acceptor. Says of each request that it refuses this many spans.
    pub async fn start_with(tls: Option<TlsAcceptor>, rejected_spans: i64) -> Self {
        const GRPC: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let received = Arc::new(Received { rejected_spans, ..Received::default() });
        let router = Router::new().route("/v1/traces", post(export_http)).route(GRPC, post(export_grpc));
        let routes = Routes::from(router.with_state(Arc::clone(&received)));
        let incoming = TcpListenerStream::new(listener).then(move |stream| accept(stream, tls.clone()));
        let serving = Server::builder().accept_http1(true).add_routes(routes).serve_with_incoming(incoming);
        let serving = tokio::spawn(async move { serving.await.expect("it serves") });
        Self { received, port, serving }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Every span, with the attributes of its process.
    pub fn spans(&self) -> Vec<(Vec<KeyValue>, Span)> {
        let exports = self.received.exports.lock().expect("no panic").clone();
        let of_resources = exports.into_iter().flat_map(|export| export.resource_spans);
        let spans = of_resources.flat_map(|ResourceSpans { resource, scope_spans }| {
            let process = resource.expect("a resource").attributes;
            let spans = scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.map(|span| (process.clone(), span)).collect::<Vec<_>>()
        });
        spans.collect()
    }

    /// The values of a header, one for each request.
    pub fn header(&self, name: &str) -> Vec<String> {
        let all = self.received.headers.lock().expect("no panic");
        let text = |headers: &HeaderMap| headers[name].to_str().expect("text").to_owned();
        all.iter().map(text).collect()
    }
}

async fn accept(stream: io::Result<TcpStream>, tls: Option<TlsAcceptor>) -> io::Result<CutStream> {
    let stream: Box<dyn ByteStream> = match tls {
        None => Box::new(stream?),
        Some(tls) => Box::new(tls.accept(stream?).await?),
    };
    Ok(CutStream::new(stream, CancellationToken::new()))
}

impl Received {
    fn add(&self, headers: HeaderMap, export: Export) -> Exported {
        self.headers.lock().expect("no panic").push(headers);
        self.exports.lock().expect("no panic").push(export);
        let rejected_spans = self.rejected_spans;
        Exported { partial_success: (rejected_spans > 0).then_some(PartialSuccess { rejected_spans }) }
    }
}

async fn export_http(
    State(received): State<Arc<Received>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Vec<u8>, StatusCode> {
    if headers["content-type"] != "application/x-protobuf" {
        return Err(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    let export = Export::decode(body).map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(received.add(headers, export).encode_to_vec())
}

async fn export_grpc(
    State(received): State<Arc<Received>>,
    request: HttpRequest,
) -> Result<http::Response<tonic::body::Body>, Infallible> {
    let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
    Ok(grpc.unary(ExportService(received), request).await)
}

struct ExportService(Arc<Received>);

impl UnaryService<Export> for ExportService {
    type Response = Exported;
    type Future = BoxFuture<'static, Result<Response<Exported>, Status>>;

    fn call(&mut self, request: Request<Export>) -> Self::Future {
        let headers = request.metadata().clone().into_headers();
        Box::pin(ready(Ok(Response::new(self.0.add(headers, request.into_inner())))))
    }
}
