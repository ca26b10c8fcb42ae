//! What a connection asks of the service for each of its calls.

use std::time::Duration;

use futures_util::future::BoxFuture;
use h2::RecvStream;
use http::{Request, Response, StatusCode};
use hyper::body::Bytes;
use tonic::Status;

use super::request_body::RequestBody;
use crate::grpc::stream_body::StreamBody;

/// Starts the calls of one connection.
pub(in crate::grpc) trait CallStarter {
    /// Reads the head of a call before anything else is done with it; an answer if the call is refused for its head.
    fn read_head(&self, request: &Request<RecvStream>) -> Result<CallHead, Answer>;

    /// Starts a call whose headers have arrived. Does not wait.
    fn start(
        &self,
        request: Request<RequestBody>,
    ) -> StartedCall<impl Future<Output = Answer> + Send + 'static>;
}

/// What the head of a call says.
pub(in crate::grpc) struct CallHead {
    /// How long its decision may take.
    pub(in crate::grpc) time_limit: Duration,
    /// The headers take too much memory for the call to be held.
    pub(in crate::grpc) is_long: bool,
}

/// A call, and what is left to do.
pub(in crate::grpc) enum StartedCall<F> {
    Answered(Answer),
    /// Most futures are ready when they are polled for the first time, which is done on the connection's task.
    Deciding(F),
    /// A decision call whose message has not arrived completely.
    Reading(BoxFuture<'static, Answer>),
    /// A call of tonic's services.
    Routed {
        response: BoxFuture<'static, Response<StreamBody>>,
        /// A stream may stay open for as long as its connection.
        is_stream: bool,
    },
}

/// The answer to a decision call.
pub(in crate::grpc) enum Answer {
    /// With its prefix; the status is OK.
    Message(Bytes),
    Refusal(Status),
    /// With a status of HTTP for clients that do not know gRPC.
    HttpRefusal(StatusCode, Status),
}
