//! Sends bodies as far as the client's windows admit.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use h2::{Reason, SendStream};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes};

/// The client has reset the call, or the connection has ended: nobody takes the rest.
#[derive(Debug)]
pub(super) struct ClientGone;

impl From<h2::Error> for ClientGone {
    fn from(error: h2::Error) -> Self {
        tracing::debug!(%error, "an answer cannot be sent");
        Self
    }
}

/// Sends a body with its trailers, and ends the stream.
pub(super) async fn send_body<B>(stream: &mut SendStream<Bytes>, mut body: B) -> Result<(), ClientGone>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    loop {
        let frame = {
            let mut next = pin!(body.frame());
            poll_fn(|cx| match next.as_mut().poll(cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                Poll::Pending => stream.poll_reset(cx).map(|_| Err(ClientGone)),
            })
            .await?
        };
        let frame = match frame {
            None => return Ok(stream.send_data(Bytes::new(), true)?),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                tracing::debug!(%error, "an answer ends early");
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
        };
        match frame.into_data() {
            Ok(data) => send_data(stream, data).await?,
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    return Ok(stream.send_trailers(trailers)?);
                }
            }
        }
    }
}

/// Sends all of `data`, in parts if the windows admit no more.
pub(super) async fn send_data(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), ClientGone> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let admitted = poll_fn(|cx| poll_admitted(stream, cx)).await?;
        stream.send_data(data.split_to(admitted.min(data.len())), false)?;
    }
    Ok(())
}

/// The number of bytes that the windows admit, at least 1.
fn poll_admitted(stream: &mut SendStream<Bytes>, cx: &mut Context<'_>) -> Poll<Result<usize, ClientGone>> {
    loop {
        let admitted = stream.capacity();
        if admitted > 0 {
            return Poll::Ready(Ok(admitted));
        }
        match ready!(stream.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(Err(error.into())),
            None => return Poll::Ready(Err(ClientGone)),
        }
    }
}
