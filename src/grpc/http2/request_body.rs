//! The body of a call, as the client sends it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use h2::{Reason, RecvStream};
use hyper::body::{Body, Bytes, Frame};

/// Each part of the body that is read opens the client's window again by its length.
#[derive(Debug)]
pub(in crate::grpc) struct RequestBody {
    stream: RecvStream,
    has_all_data: bool,
}

impl From<RecvStream> for RequestBody {
    fn from(stream: RecvStream) -> Self {
        Self { stream, has_all_data: false }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.has_all_data {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    self.stream.flow_control().release_capacity(data.len())?;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(unless_complete(error)),
                None => self.has_all_data = true,
            }
        }
        Poll::Ready(match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => unless_complete(error),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }
}

/// A client that resets its call without an error has sent all that it wants to send.
fn unless_complete<T>(error: h2::Error) -> Option<Result<T, h2::Error>> {
    (error.reason() != Some(Reason::NO_ERROR)).then_some(Err(error))
}
