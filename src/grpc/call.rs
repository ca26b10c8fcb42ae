//! Starts and answers calls. The decision call, `ShouldRateLimit`, goes directly to its handler. Every other call goes
//! through tonic's router (axum), which would add about 3,800 instructions to a decision call (callgrind, tonic 0.14).
//! tonic's own server also decodes and encodes through a stream of messages, with a codec and a timer for each call. A
//! call with a single message needs neither. And calls that tonic's server refuses would not be counted.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use engine::wire::RawRequest;
use engine::{Caller, Store};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use h2::RecvStream;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, Uri, header};
use hyper::body::Bytes;
use prost::Message as _;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use super::call_head::{CallHead, read_head};
use super::convert::{encode, http_status};
use super::message::{Arrival, MessageBounds, RequestBody};
use super::open_calls::ConnectionCalls;
use super::other_services::{ConnectionStreams, OpenStream, StreamBody, StreamKind};
use super::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::decide::{Answer, Handler, NoDecision};
use crate::telemetry::traces::{CallSpan, SpannedCall};

/// The path of the decision call.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

const READ_BY_TONIC: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
    HeaderName::from_static("grpc-timeout"),
];

/// A call, and what is left to do.
pub(super) enum StartedCall {
    Answered(Reply),
    /// The message has arrived.
    Deciding(BoxFuture<'static, Reply>),
    /// A part of the message is still missing.
    Reading(BoxFuture<'static, Reply>),
    /// A call of tonic's services.
    Routed {
        response: BoxFuture<'static, Response<StreamBody>>,
        /// A stream may stay open for as long as its connection.
        is_stream: bool,
    },
}

/// What goes back to the client of a decision call.
pub(super) enum Reply {
    /// An answer with its prefix; the status is OK.
    Message(Bytes),
    Refusal(Status),
    /// The status of HTTP is for clients that do not know gRPC.
    HttpRefusal(StatusCode, Status),
}

/// Starts the calls of one connection.
pub(super) struct CallStarter<S> {
    pub(super) decisions: Arc<DecisionCalls<S>>,
    pub(super) routes: Routes,
    pub(super) calls: Arc<ConnectionCalls>,
    pub(super) streams: ConnectionStreams,
    /// Cancelled when the connection is to be closed.
    pub(super) closing: CancellationToken,
}

impl<S: Store + 'static> CallStarter<S> {
    /// Reads the head of a call, before anything else is done with the call. The error is the reply to a call that is
    /// refused because of its head.
    pub(super) fn read_call_head(&self, request: &Request<RecvStream>) -> Result<CallHead, Reply> {
        read_head(request).map_err(|error| self.refuse_head(request, error))
    }

    /// Starts a call whose headers have arrived. Does not wait.
    pub(super) fn start(&self, request: Request<RequestBody>) -> StartedCall {
        if !self.calls.has_room() {
            return StartedCall::Answered(self.many_calls());
        }
        if request.uri().path() != PATH {
            return self.start_routed(request);
        }
        let span = self.decisions.handler.tracer.start_call(SpannedCall::ShouldRateLimit, request.headers());
        Arc::clone(&self.decisions).start(request.into_body(), self.calls.caller(), span)
    }

    fn start_routed(&self, request: Request<RequestBody>) -> StartedCall {
        let kind = StreamKind::at_path(request.uri().path());
        let stream = kind.and_then(|kind| self.streams.open(kind));
        if kind.is_some() && stream.is_none() {
            return StartedCall::Answered(self.many_calls());
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
    fn refuse_head(&self, request: &Request<RecvStream>, error: NoDecision) -> Reply {
        if !self.calls.has_room() {
            return self.many_calls();
        }
        let failures = &self.decisions.handler.failures;
        match http_status(&error) {
            Some(code) => Reply::HttpRefusal(code, failures.record(error).into()),
            None if request.uri().path() == PATH => self.decisions.refuse(error, request.headers()),
            None => failures.record(error).into(),
        }
    }

    fn many_calls(&self) -> Reply {
        self.decisions.handler.failures.record(NoDecision::ManyCalls).into()
    }
}

/// What the decision calls of one worker share.
#[derive(Debug)]
pub(super) struct DecisionCalls<S> {
    pub(super) handler: Handler<S>,
    pub(super) bounds: MessageBounds,
}

impl<S: Store + 'static> DecisionCalls<S> {
    fn start(self: Arc<Self>, body: RequestBody, caller: Caller, span: CallSpan) -> StartedCall {
        match Arrival::take(body, &self.bounds) {
            Arrival::Whole(message) => StartedCall::Deciding(Box::pin(self.answer(message, caller, span))),
            Arrival::Part(part) => StartedCall::Reading(Box::pin(async move {
                let message = part.complete(&self.bounds).await;
                self.answer(message, caller, span).await
            })),
        }
    }

    /// Answers a call whose message is not read.
    fn refuse(&self, error: NoDecision, headers: &HeaderMap) -> Reply {
        let mut span = self.handler.tracer.start_call(SpannedCall::ShouldRateLimit, headers);
        self.handler.refuse(error, &mut span).unwrap_or_else(Reply::from)
    }

    /// A panic ends this call only: other calls are polled by the same task.
    async fn answer(
        self: Arc<Self>,
        message: Result<Bytes, NoDecision>,
        caller: Caller,
        mut span: CallSpan,
    ) -> Reply {
        let decided = AssertUnwindSafe(self.decide(message, caller, &mut span)).catch_unwind().await;
        let decided = decided.unwrap_or_else(|_| self.handler.refuse(NoDecision::Panic, &mut span));
        decided.unwrap_or_else(Reply::from)
    }

    async fn decide(
        &self,
        message: Result<Bytes, NoDecision>,
        caller: Caller,
        span: &mut CallSpan,
    ) -> Result<Reply, NoDecision> {
        match message.and_then(decode) {
            Ok(request) => self.handler.decide(request, caller, span).await,
            Err(error) => self.handler.refuse(error, span),
        }
    }
}

impl From<Answer<'_>> for Reply {
    fn from(answer: Answer<'_>) -> Self {
        Self::Message(encode(&answer.into()))
    }
}

impl From<NoDecision> for Reply {
    fn from(error: NoDecision) -> Self {
        Self::Refusal(error.into())
    }
}

/// prost copies the texts of a [`Bytes`] once, and those of a slice twice.
fn decode(message: Bytes) -> Result<RawRequest, NoDecision> {
    // The text of the error names the field, and holds no value.
    let malformed = |error: prost::DecodeError| NoDecision::Malformed { cause: error.to_string() };
    Ok(RateLimitRequest::decode(message).map_err(malformed)?.into())
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
