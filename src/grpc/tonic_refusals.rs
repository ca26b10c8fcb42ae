//! Refusals before tonic's server calls the service: calls with a bad head (`head`) or from web pages, which tonic does
//! not check, and messages that tonic cannot read. All are counted, and can be denials, like any invalid request.
//! INVALID_ARGUMENT replaces tonic's INTERNAL, because the mistake is the client's.

use std::future::ready;
use std::sync::Arc;
use std::task::{Context, Poll};

use engine::Store;
use futures_util::future::BoxFuture;
use futures_util::stream::once;
use http::{HeaderValue, Request, Response, header};
use parking_lot::Mutex;
use tonic::body::Body;
use tonic::codec::{Codec as _, EncodeBody, SingleMessageCompressionOverride};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower::Service;

use super::head::{DecisionCall, PATH, RefusedHead, read_head};
use super::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::decide::{Handler, NoDecision};
use crate::telemetry::traces::CallSpan;

/// A decision call's span, which the service takes. It is still there if tonic has refused the call.
#[derive(Clone)]
pub(super) struct CallSpanSlot(Arc<Mutex<Option<CallSpan>>>);

impl CallSpanSlot {
    pub(super) fn take(&self) -> Option<CallSpan> {
        self.0.lock().take()
    }
}

/// The services in `next`, with this service's refusals.
pub(super) struct TonicRefusals<S, N> {
    pub(super) handler: Arc<Handler<S>>,
    pub(super) next: N,
}

impl<S, N: Clone> Clone for TonicRefusals<S, N> {
    fn clone(&self) -> Self {
        Self { handler: Arc::clone(&self.handler), next: self.next.clone() }
    }
}

impl<S, N> Service<Request<Body>> for TonicRefusals<S, N>
where
    S: Store + 'static,
    N: Service<Request<Body>, Response = Response<Body>>,
    N::Future: Send + 'static,
    N::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = N::Error;
    type Future = BoxFuture<'static, Result<Response<Body>, N::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), N::Error>> {
        self.next.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Err(refused) = read_head(&request) {
            return Box::pin(ready(Ok(refuse_head(&self.handler, &request, refused))));
        }
        let Some(call) = DecisionCall::at(request.uri().path()) else {
            return Box::pin(self.next.call(request));
        };
        let span = self.handler.tracer.start_call(call.spanned(), request.headers());
        let slot = CallSpanSlot(Arc::new(Mutex::new(Some(span))));
        request.extensions_mut().insert(slot.clone());
        let (handler, answered) = (Arc::clone(&self.handler), self.next.call(request));
        Box::pin(async move {
            let response = answered.await?;
            let refused = slot.take().zip(Status::from_header_map(response.headers()));
            Ok(refused.map_or(response, |(span, status)| refuse(&handler, call, of_tonic(&status), span)))
        })
    }
}

fn refuse_head<S: Store>(
    handler: &Handler<S>,
    request: &Request<Body>,
    refused: RefusedHead,
) -> Response<Body> {
    if refused.may_be_denied() && request.uri().path() == PATH {
        let call = DecisionCall::ShouldRateLimit;
        let span = handler.tracer.start_call(call.spanned(), request.headers());
        return refuse(handler, call, refused.error, span);
    }
    drop(handler.failures.record(refused.error.clone()));
    let (code, status) = refused.into_status();
    let mut response = status.into_http();
    *response.status_mut() = code;
    response
}

/// Returns why tonic refused a call that the service has not seen.
fn of_tonic(status: &Status) -> NoDecision {
    match status.code() {
        Code::OutOfRange => NoDecision::TooLong(status.message().to_owned().into()),
        Code::Unimplemented => NoDecision::COMPRESSED,
        _ => NoDecision::malformed(status.message()),
    }
}

/// Counts a failed decision call. The response is an error, or a denial.
fn refuse<S: Store>(
    handler: &Handler<S>,
    call: DecisionCall,
    error: NoDecision,
    mut span: CallSpan,
) -> Response<Body> {
    if matches!(call, DecisionCall::Report | DecisionCall::Reserve | DecisionCall::Commit) {
        return Status::from(handler.fail(error, &mut span)).into_http();
    }
    let denial: RateLimitResponse = match handler.refuse(error, &mut span) {
        Ok(denial) => denial,
        Err(error) => return Status::from(error).into_http(),
    };
    let encoder = ProstCodec::<RateLimitResponse, RateLimitRequest>::default().encoder();
    let message = once(ready(Ok(denial)));
    let compression = SingleMessageCompressionOverride::default();
    let body = EncodeBody::new_server(encoder, message, None, compression, None);
    let mut response = Response::new(Body::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}
