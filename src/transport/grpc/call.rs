//! `ShouldRateLimit`, from the body of the call to the body of the answer. tonic's own server decodes and encodes by
//! way of a stream of messages, with a codec and a timer per call; a single message needs neither, and its refusals
//! must be counted.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use hyper::body::{Body, Bytes};
use prost::Message as _;
use tonic::Status;

use super::answer_body::AnswerBody;
use super::encoded_answer::EncodedAnswer;
use super::field_count;
use super::message::{MessageBounds, read_message};
use super::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use super::usual_request::usual_request;
use crate::engine::{Caller, Store};
use crate::telemetry::traces::CallSpan;
use crate::transport::{Bounds, DecisionCallError, Handler, MessageError, RawRequest};

/// The path of the decision call.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What the decision calls of one worker share.
#[derive(Debug)]
pub(super) struct DecisionCalls<S> {
    pub(super) handler: Handler<S>,
    pub(super) bounds: MessageBounds,
}

impl<S: Store> DecisionCalls<S> {
    pub(super) async fn answer<B>(&self, body: B, caller: Caller, mut span: CallSpan) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        match self.decide(body, caller, &mut span).await {
            Ok(EncodedAnswer(message)) => ok(AnswerBody::Message(message)),
            Err(error) => refusal(Status::from(error)),
        }
    }

    async fn decide<B>(
        &self,
        body: B,
        caller: Caller,
        span: &mut CallSpan,
    ) -> Result<EncodedAnswer, DecisionCallError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let message = read_message(body, &self.bounds).await.map_err(DecisionCallError::from);
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

fn ok(body: AnswerBody) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// A response of headers only.
pub(super) fn refusal(status: Status) -> Response<AnswerBody> {
    status.into_http::<()>().map(|()| AnswerBody::Nothing)
}
