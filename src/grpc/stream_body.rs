//! The body of an answer that tonic's services make: health and reflection. Their streams can last as long as the
//! connection, so they end with a status when the connection is to be closed.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::HeaderMap;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;

use super::open_streams::OpenStream;

pub(super) struct StreamBody {
    body: tonic::body::Body,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    has_ended: bool,
    /// Counts a stream until its end.
    _stream: Option<OpenStream>,
}

impl StreamBody {
    /// Ends `body` when `closing` is cancelled.
    pub(super) fn new(
        body: tonic::body::Body,
        closing: CancellationToken,
        stream: Option<OpenStream>,
    ) -> Self {
        Self { body, closing: Box::pin(closing.cancelled_owned()), has_ended: false, _stream: stream }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready() || self.closing.as_mut().poll(cx).is_pending() {
            return polled;
        }
        self.has_ended = true;
        let mut trailers = HeaderMap::new();
        Status::unavailable("the server closes this connection").add_header(&mut trailers)?;
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
