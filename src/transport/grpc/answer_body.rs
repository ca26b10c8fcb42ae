//! The body of an answer to a decision call: one message, then the status OK in trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Body, Bytes, Frame};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The parts that were not sent yet.
#[derive(Debug)]
pub(super) enum AnswerBody {
    /// With its prefix.
    Message(Bytes),
    Trailers,
    Nothing,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match std::mem::replace(&mut *self, Self::Nothing) {
            Self::Message(bytes) => {
                *self = Self::Trailers;
                Some(Frame::data(bytes))
            }
            Self::Trailers => {
                let mut trailers = HeaderMap::with_capacity(1);
                trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
                Some(Frame::trailers(trailers))
            }
            Self::Nothing => None,
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}
