//! `ShouldRateLimit`, from the body of the call to the body of the answer. tonic's own server decodes and encodes by
//! way of a stream of messages, with a codec and a timer per call; a single message needs neither, and its refusals
//! must be counted.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use hyper::body::{Body, Bytes};
use prost::Message as _;
use tonic::Status;

use super::answer_body::AnswerBody;
use super::message::{MessageBounds, read_message};
use super::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::engine::Store;
use crate::transport::{DecisionCallError, Handler, MessageError};

/// The path of the decision call.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What the decision calls of one worker share.
#[derive(Debug)]
pub(super) struct DecisionCalls<S> {
    pub(super) handler: Handler<S>,
    pub(super) bounds: MessageBounds,
}

impl<S: Store> DecisionCalls<S> {
    pub(super) async fn answer<B>(&self, body: B) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        match self.decide(body).await {
            Ok(answer) => ok(AnswerBody::encode(&answer)),
            Err(error) => refusal(Status::from(error)),
        }
    }

    async fn decide<B>(&self, body: B) -> Result<RateLimitResponse, DecisionCallError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        match read_message(body, &self.bounds).await.and_then(decode) {
            Ok(request) => self.handler.decide(request).await,
            Err(error) => self.handler.refuse(error.into()),
        }
    }
}

fn decode(message: Bytes) -> Result<RateLimitRequest, MessageError> {
    // The text of the error names the field, and holds no value.
    RateLimitRequest::decode(message).map_err(|error| MessageError::Malformed { cause: error.to_string() })
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
