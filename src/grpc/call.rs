//! `ShouldRateLimit`, from the body of the call to the answer. tonic's own server decodes and encodes by way of a
//! stream of messages, with a codec and a timer per call; a single message needs neither, and its refusals must be
//! counted.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use engine::wire::{Bounds, RawRequest};
use engine::{Caller, Store};
use futures_util::FutureExt as _;
use http::HeaderMap;
use hyper::body::{Body, Bytes};
use prost::Message as _;
use tonic::Status;

use super::encoded_answer::EncodedAnswer;
use super::field_count;
use super::http2::calls::{Answer, StartedCall};
use super::message::{Arrival, MessageBounds};
use super::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use super::usual_request::usual_request;
use crate::decide::{DecisionCallError, Handler, MessageError};
use crate::telemetry::metrics::RequestFailure;
use crate::telemetry::traces::{CallSpan, SpannedCall};

/// The path of the decision call.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What the decision calls of one worker share.
#[derive(Debug)]
pub(super) struct DecisionCalls<S> {
    pub(super) handler: Handler<S>,
    pub(super) bounds: MessageBounds,
}

impl<S: Store + 'static> DecisionCalls<S> {
    pub(super) fn start<B>(
        self: Arc<Self>,
        body: B,
        caller: Caller,
        span: CallSpan,
    ) -> StartedCall<impl Future<Output = Answer> + Send + 'static>
    where
        B: Body<Data = Bytes, Error: Send> + Send + Unpin + 'static,
    {
        match Arrival::of_body(body, &self.bounds) {
            Arrival::Whole(message) => StartedCall::Deciding(self.answer(message, caller, span)),
            Arrival::Part(part) => StartedCall::Reading(Box::pin(async move {
                let message = part.complete(&self.bounds).await;
                self.answer(message, caller, span).await
            })),
        }
    }

    /// Answers a call whose message is not read.
    pub(super) fn refuse(&self, error: DecisionCallError, headers: &HeaderMap) -> Answer {
        let mut span = self.handler.tracer.start_call(SpannedCall::ShouldRateLimit, headers);
        match self.handler.refuse(error, &mut span) {
            Ok(EncodedAnswer(message)) => Answer::Message(message),
            Err(error) => Answer::Refusal(error.into()),
        }
    }

    /// A panic ends this call only: other calls are polled by the same task.
    async fn answer(
        self: Arc<Self>,
        message: Result<Bytes, MessageError>,
        caller: Caller,
        mut span: CallSpan,
    ) -> Answer {
        match AssertUnwindSafe(self.decide(message, caller, &mut span)).catch_unwind().await {
            Ok(Ok(EncodedAnswer(message))) => Answer::Message(message),
            Ok(Err(error)) => Answer::Refusal(error.into()),
            Err(_) => {
                // The panic hook has written the reason to the log.
                self.handler.failures.record(RequestFailure::Panic, &"the decision panicked");
                span.add_failure(RequestFailure::Panic);
                Answer::Refusal(Status::internal("the decision ended by an error of the service"))
            }
        }
    }

    async fn decide(
        &self,
        message: Result<Bytes, MessageError>,
        caller: Caller,
        span: &mut CallSpan,
    ) -> Result<EncodedAnswer, DecisionCallError> {
        let message = message.map_err(DecisionCallError::from);
        match message.and_then(|message| decode(&message, &self.handler.bounds)) {
            Ok(request) => self.handler.decide(request, caller, span).await,
            Err(error) => self.handler.refuse(error, span),
        }
    }
}

fn decode(message: &[u8], bounds: &Bounds) -> Result<RawRequest, DecisionCallError> {
    if let Some(request) = usual_request(message) {
        return Ok(request);
    }
    field_count::check(message, bounds)?;
    // The text of the error names the field, and holds no value.
    let malformed = |error: prost::DecodeError| MessageError::Malformed { cause: error.to_string() };
    Ok(RateLimitRequest::decode(message).map_err(malformed)?.into())
}
