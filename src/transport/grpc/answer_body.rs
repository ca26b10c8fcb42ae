//! The body of an answer to a decision call: one message, then the status OK in trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Body, Bytes, Frame};
use prost::Message;
use prost::bytes::{BufMut as _, BytesMut};

use super::message::PREFIX_BYTES;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// The parts that were not sent yet.
#[derive(Debug)]
pub(super) enum AnswerBody {
    Message(Bytes),
    Trailers,
    Nothing,
}

impl AnswerBody {
    pub(super) fn encode(answer: &impl Message) -> Self {
        let length = answer.encoded_len();
        let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + length);
        // Not compressed.
        bytes.put_u8(0);
        // An answer has some hundred bytes for each descriptor; the request had to fit in less.
        bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        answer.encode_raw(&mut bytes);
        Self::Message(bytes.freeze())
    }
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
