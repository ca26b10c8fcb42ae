//! Sends the decision call directly to its handler, and every other call through tonic's router (axum). The router
//! would add about 3,800 instructions to a decision call, 7 % of a decision on Redis (callgrind, tonic 0.14).

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Either;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use super::answer_body::AnswerBody;
use super::call::{self, DecisionCalls, refusal};
use super::open_calls::ConnectionCalls;
use super::stream_body::StreamBody;
use crate::engine::Store;
use crate::telemetry::traces::SpannedCall;
use crate::transport::{DecisionCallError, MessageError};

const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

/// Calls that last until the client ends them.
const STREAMS: [&str; 3] = [
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// The calls of one connection.
pub(super) struct Dispatch<S> {
    pub(super) decisions: Arc<DecisionCalls<S>>,
    pub(super) routes: Routes,
    pub(super) calls: Arc<ConnectionCalls>,
    /// Cancelled when the connection is to be closed.
    pub(super) closing: CancellationToken,
}

type Answered = BoxFuture<'static, Result<Response<Either<AnswerBody, StreamBody>>, Infallible>>;

impl<S: Store + 'static> hyper::service::Service<Request<Incoming>> for Dispatch<S> {
    type Response = Response<Either<AnswerBody, StreamBody>>;
    type Error = Infallible;
    type Future = Answered;

    /// hyper passes the call to the executor right after this.
    fn call(&self, request: Request<Incoming>) -> Answered {
        let path = request.uri().path();
        self.calls.announce(STREAMS.contains(&path));
        let is_decision = path == call::PATH;
        if !self.calls.has_room() {
            return self.refuse();
        }
        if is_decision { self.decide(request) } else { self.route(request) }
    }
}

impl<S: Store + 'static> Dispatch<S> {
    fn decide(&self, request: Request<Incoming>) -> Answered {
        let decisions = Arc::clone(&self.decisions);
        let span = decisions.handler.tracer.start_call(SpannedCall::ShouldRateLimit, request.headers());
        let body = request.into_body();
        let (undecided, caller) = (self.calls.decide(), self.calls.caller());
        Box::pin(async move {
            let response = decisions.answer(body, caller, span).await;
            drop(undecided);
            Ok(response.map(Either::Left))
        })
    }

    fn route(&self, request: Request<Incoming>) -> Answered {
        let is_health_check = request.uri().path() == HEALTH_CHECK;
        let answered = self.routes.clone().call(request);
        let (closing, decisions) = (self.closing.clone(), Arc::clone(&self.decisions));
        Box::pin(async move {
            let timer = is_health_check.then(|| decisions.handler.meter.start_health_check());
            let response = answered.await?;
            drop(timer);
            Ok(response.map(|body| Either::Right(StreamBody::new(body, closing))))
        })
    }

    fn refuse(&self) -> Answered {
        let error = DecisionCallError::from(MessageError::ManyCalls);
        let error = self.decisions.handler.record(error);
        Box::pin(ready(Ok(refusal(Status::from(error)).map(Either::Left))))
    }
}
