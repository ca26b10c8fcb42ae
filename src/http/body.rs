//! A request body that must arrive in time, and whose bytes count as unfinished while it arrives. Its connection counts
//! as idle until the body is whole.

use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::Sleep;

use super::connections::IdleSince;
use crate::decide::MessageError;
use crate::net::unfinished::{ARRIVES_WITHIN, HeldBytes, UnfinishedBytes};

pub(super) struct BoundedBody {
    body: Incoming,
    connection: IdleSince,
    received: usize,
    held: HeldBytes,
    /// Runs from the first time that the body keeps its reader waiting.
    timer: Option<Pin<Box<Sleep>>>,
}

impl BoundedBody {
    /// Of a request whose head has arrived on `connection`.
    pub(super) fn new(body: Incoming, connection: IdleSince, unfinished: &UnfinishedBytes) -> Self {
        if body.is_end_stream() {
            connection.request_arrived();
        } else {
            connection.head_arrived();
        }
        Self { body, connection, received: 0, held: unfinished.hold_none(), timer: None }
    }
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = MessageError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, MessageError>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(ARRIVES_WITHIN)));
            return timer.as_mut().poll(cx).map(|()| Some(Err(MessageError::Late(ARRIVES_WITHIN))));
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(unread(&error)))),
            None => {
                self.connection.request_arrived();
                return Poll::Ready(None);
            }
        };
        self.received += frame.data_ref().map_or(0, Bytes::len);
        let received = self.received;
        let is_held = self.held.grow_to(received);
        Poll::Ready(Some(if is_held { Ok(frame) } else { Err(MessageError::ManyBytes) }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Why hyper cannot read on. Its errors about the encoding of a body contain an error of I/O of one of two kinds.
fn unread(error: &hyper::Error) -> MessageError {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(ErrorKind::InvalidInput | ErrorKind::InvalidData) => MessageError::Malformed {
            cause: "the chunks of the body are not as HTTP/1.1 requires".to_owned(),
        },
        _ => MessageError::Aborted,
    }
}
