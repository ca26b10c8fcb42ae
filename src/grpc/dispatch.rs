//! Sends the decision call directly to its handler, and every other call through tonic's router (axum). The router
//! would add about 3,800 instructions to a decision call, 7 % of a decision on Redis (callgrind, tonic 0.14).

use std::sync::Arc;

use engine::Store;
use futures_util::future::BoxFuture;
use h2::RecvStream;
use http::{HeaderMap, HeaderName, Request, Response, Uri, header};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use super::call::{self, DecisionCalls};
use super::call_head::read_head;
use super::http2::calls::{Answer, CallHead, CallStarter, StartedCall};
use super::http2::request_body::RequestBody;
use super::open_calls::ConnectionCalls;
use super::open_streams::{ConnectionStreams, OpenStream, StreamKind};
use super::status::http_status;
use super::stream_body::StreamBody;
use crate::decide::{DecisionCallError, MessageError};
use crate::telemetry::traces::SpannedCall;

const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

const READ_BY_TONIC: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
    HeaderName::from_static("grpc-timeout"),
];

/// The calls of one connection.
pub(super) struct Dispatch<S> {
    pub(super) decisions: Arc<DecisionCalls<S>>,
    pub(super) routes: Routes,
    pub(super) calls: Arc<ConnectionCalls>,
    pub(super) streams: ConnectionStreams,
    /// Cancelled when the connection is to be closed.
    pub(super) closing: CancellationToken,
}

impl<S: Store + 'static> CallStarter for Dispatch<S> {
    fn read_head(&self, request: &Request<RecvStream>) -> Result<CallHead, Answer> {
        read_head(request).map_err(|error| self.refuse_head(request, error))
    }

    fn start(
        &self,
        request: Request<RequestBody>,
    ) -> StartedCall<impl Future<Output = Answer> + Send + 'static> {
        let path = request.uri().path();
        if !self.calls.has_room() {
            return StartedCall::Answered(self.refusal());
        }
        if path != call::PATH {
            return self.start_routed(request);
        }
        let span = self.decisions.handler.tracer.start_call(SpannedCall::ShouldRateLimit, request.headers());
        Arc::clone(&self.decisions).start(request.into_body(), self.calls.caller(), span)
    }
}

impl<S: Store + 'static> Dispatch<S> {
    fn start_routed<F>(&self, request: Request<RequestBody>) -> StartedCall<F> {
        let kind = StreamKind::of_path(request.uri().path());
        let stream = kind.and_then(|kind| self.streams.open(kind));
        if kind.is_some() && stream.is_none() {
            return StartedCall::Answered(self.refusal());
        }
        let request = with_short_head(request);
        StartedCall::Routed { is_stream: kind.is_some(), response: self.response(request, stream) }
    }

    fn response(
        &self,
        request: Request<RequestBody>,
        stream: Option<OpenStream>,
    ) -> BoxFuture<'static, Response<StreamBody>> {
        let is_health_check = request.uri().path() == HEALTH_CHECK;
        let answered = self.routes.clone().call(request);
        let (closing, decisions) = (self.closing.clone(), Arc::clone(&self.decisions));
        Box::pin(async move {
            let timer = is_health_check.then(|| decisions.handler.meter.start_health_check());
            let Ok(response) = answered.await;
            drop(timer);
            response.map(|body| StreamBody::new(body, closing, stream))
        })
    }

    #[cold]
    fn refuse_head(&self, request: &Request<RecvStream>, error: MessageError) -> Answer {
        if !self.calls.has_room() {
            return self.refusal();
        }
        if let Some(code) = http_status(&error) {
            let error = self.decisions.handler.record(error.into());
            return Answer::HttpRefusal(code, error.into());
        }
        if request.uri().path() == call::PATH {
            return self.decisions.refuse(error.into(), request.headers());
        }
        Answer::Refusal(self.decisions.handler.record(error.into()).into())
    }

    fn refusal(&self) -> Answer {
        let error = self.decisions.handler.record(DecisionCallError::from(MessageError::ManyCalls));
        Answer::Refusal(Status::from(error))
    }
}

/// The request with the headers that tonic reads, and without its query. tonic keeps the head of a call until its
/// message has arrived, and a head can take seventy times the bytes in which it was sent.
fn with_short_head<B>(request: Request<B>) -> Request<B> {
    let (mut parts, body) = request.into_parts();
    let mut kept = HeaderMap::with_capacity(READ_BY_TONIC.len());
    for name in READ_BY_TONIC {
        let value = parts.headers.remove(&name);
        kept.extend(value.map(|value| (name, value)));
    }
    parts.headers = kept;
    if parts.uri.query().is_some()
        && let Ok(path) = Uri::try_from(parts.uri.path())
    {
        parts.uri = path;
    }
    Request::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_another_service_keeps_little_of_its_head() {
        let path = format!("http://server{HEALTH_CHECK}?{}", "q".repeat(10_000));
        let mut request = Request::post(path).header("content-type", "application/grpc");
        for n in 0..1_000 {
            request = request.header("x", n);
        }
        let request = request.header("grpc-timeout", "1S").header("x-long", "v".repeat(10_000));
        let short = with_short_head(request.body(()).expect("valid"));
        assert_eq!((short.method(), short.uri().path()), (&http::Method::POST, HEALTH_CHECK));
        assert_eq!(short.uri().query(), None);
        let kept: Vec<_> = short.headers().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(kept, ["content-type", "grpc-timeout"]);
    }
}
