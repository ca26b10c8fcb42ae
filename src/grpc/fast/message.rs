//! Reads a unary call's message: a flag, four bytes of length, the message (gRPC over HTTP/2). Bounded in length, in
//! time, and in the bytes of all unfinished requests together.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::FutureExt as _;
use h2::{Reason, RecvStream};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame};

use crate::decide::NoDecision;
use crate::net::unfinished::{ARRIVES_WITHIN, HeldBytes, UnfinishedBytes};

/// Prefix of a message: the compression flag, and the length.
pub(super) const PREFIX_BYTES: usize = 5;
/// First allocation for a message that arrives in pieces.
const FIRST_BUFFER_BYTES: usize = 512;

const MISSING: NoDecision = NoDecision::invalid("the call has no message");
const TRUNCATED: NoDecision = NoDecision::invalid("the message ends too early");
const SEVERAL: NoDecision = NoDecision::invalid("the call has more than one message");

fn long_message(bytes: usize, max: usize) -> NoDecision {
    NoDecision::TooLong(format!("{bytes} bytes in the message, more than the {max} allowed").into())
}

#[derive(Clone, Debug)]
pub(super) struct MessageBounds {
    pub(super) max_bytes: usize,
    pub(super) unfinished: UnfinishedBytes,
}

/// What has arrived of a call's only message.
pub(super) enum Arrival<B: Body> {
    /// The message without its prefix, or what is wrong with it.
    Whole(Result<Bytes, NoDecision>),
    Part(PartialBody<B>),
}

/// The body of a call whose message is incomplete.
pub(super) struct PartialBody<B: Body> {
    body: B,
    /// Frames already read; `None` is the body's end.
    arrived: Vec<Option<Result<Frame<Bytes>, B::Error>>>,
}

impl<B: Body<Data = Bytes> + Unpin> Arrival<B> {
    /// Takes what has arrived of `body`. Nearly every message arrives with its headers, in one frame; some clients then
    /// end the call with an empty second frame. Such a message needs neither a timer nor a copy.
    pub(super) fn take(mut body: B, bounds: &MessageBounds) -> Self {
        let first = body.frame().now_or_never();
        if !matches!(&first, Some(Some(Ok(frame))) if frame.is_data()) {
            return Self::Part(PartialBody { body, arrived: first.into_iter().collect() });
        }
        let is_complete = body.is_end_stream();
        let second = if is_complete { Some(None) } else { body.frame().now_or_never() };
        match (first, second) {
            (Some(Some(Ok(frame))), Some(None)) => Self::Whole(whole_message(frame, bounds.max_bytes)),
            (Some(Some(Ok(frame))), Some(Some(Ok(last)))) if is_empty(&last) && body.is_end_stream() => {
                Self::Whole(whole_message(frame, bounds.max_bytes))
            }
            (first, second) => {
                Self::Part(PartialBody { body, arrived: first.into_iter().chain(second).collect() })
            }
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> PartialBody<B> {
    pub(super) async fn complete(self, bounds: &MessageBounds) -> Result<Bytes, NoDecision> {
        let collected = tokio::time::timeout(ARRIVES_WITHIN, self.collect(bounds)).await;
        collected.unwrap_or(Err(NoDecision::LATE))
    }

    async fn collect(mut self, bounds: &MessageBounds) -> Result<Bytes, NoDecision> {
        let mut partial = PartialMessage {
            bytes: Vec::new(),
            share: bounds.unfinished.hold_none(),
            max_bytes: bounds.max_bytes,
        };
        let mut arrived = self.arrived.into_iter();
        loop {
            let frame = match arrived.next() {
                Some(frame) => frame,
                None => self.body.frame().await,
            };
            let Some(frame) = frame else { break };
            // A frame without data has trailers, which gRPC requests do not use.
            if let Ok(data) = frame.map_err(|_| NoDecision::ABORTED)?.into_data() {
                partial.push(&data)?;
            }
        }
        without_prefix(Bytes::from(partial.bytes), bounds.max_bytes)
    }
}

fn is_empty(frame: &Frame<Bytes>) -> bool {
    frame.data_ref().is_none_or(Bytes::is_empty)
}

fn whole_message(frame: Frame<Bytes>, max_bytes: usize) -> Result<Bytes, NoDecision> {
    without_prefix(frame.into_data().unwrap_or_default(), max_bytes)
}

fn without_prefix(mut data: Bytes, max_bytes: usize) -> Result<Bytes, NoDecision> {
    match end_of_message(&data, max_bytes)? {
        None => Err(if data.is_empty() { MISSING } else { TRUNCATED }),
        Some(end) if data.len() < end => Err(TRUNCATED),
        Some(end) if data.len() > end => Err(SEVERAL),
        Some(_) => Ok(data.split_off(PREFIX_BYTES)),
    }
}

/// Length of prefix and message; `None` if the prefix is incomplete.
fn end_of_message(data: &[u8], max_bytes: usize) -> Result<Option<usize>, NoDecision> {
    let Some(([flag, length @ ..], _)) = data.split_first_chunk::<PREFIX_BYTES>() else {
        return Ok(None);
    };
    if *flag != 0 {
        return Err(NoDecision::COMPRESSED);
    }
    let bytes = u32::from_be_bytes(*length) as usize;
    if bytes > max_bytes {
        return Err(long_message(bytes, max_bytes));
    }
    Ok(Some(PREFIX_BYTES + bytes))
}

/// What has arrived of a message, including its prefix.
struct PartialMessage {
    bytes: Vec<u8>,
    /// Counts the capacity of `bytes`.
    share: HeldBytes,
    max_bytes: usize,
}

impl PartialMessage {
    fn push(&mut self, data: &[u8]) -> Result<(), NoDecision> {
        let length = self.bytes.len() + data.len();
        let start: Vec<u8> = self.bytes.iter().chain(data).take(PREFIX_BYTES).copied().collect();
        // A wrong length or flag is refused before the rest arrives.
        let end = end_of_message(&start, self.max_bytes)?.unwrap_or(PREFIX_BYTES);
        if length > end {
            return Err(SEVERAL);
        }
        if length > self.bytes.capacity() {
            let doubled = (2 * self.bytes.capacity()).max(FIRST_BUFFER_BYTES);
            let capacity = doubled.min(end).max(length);
            if !self.share.grow_to(capacity) {
                return Err(NoDecision::MANY_BYTES);
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

/// The body of a call. Each part that is read reopens the client's window by its length.
#[derive(Debug)]
pub(super) struct RequestBody {
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

/// A reset without an error (NO_ERROR) means that the client has finished sending.
fn unless_complete<T>(error: h2::Error) -> Option<Result<T, h2::Error>> {
    (error.reason() != Some(Reason::NO_ERROR)).then_some(Err(error))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::StreamExt as _;
    use futures_util::stream;
    use http_body_util::StreamBody;
    use tokio::time::Instant;

    use super::*;

    const MAX: usize = 8;

    async fn read_message<B>(body: B, bounds: &MessageBounds) -> Result<Bytes, NoDecision>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        match Arrival::take(body, bounds) {
            Arrival::Whole(message) => message,
            Arrival::Part(part) => part.complete(bounds).await,
        }
    }

    fn bounds(unfinished: usize) -> MessageBounds {
        MessageBounds { max_bytes: MAX, unfinished: UnfinishedBytes::new(unfinished) }
    }

    /// A body of these frames, which ends if `ends`, and otherwise keeps the reader waiting.
    fn body(frames: &[&[u8]], ends: bool) -> impl Body<Data = Bytes, Error = Infallible> + Unpin + use<> {
        let frames: Vec<_> =
            frames.iter().map(|frame| Ok(Frame::data(Bytes::copy_from_slice(frame)))).collect();
        let rest = if ends { stream::empty().left_stream() } else { stream::pending().right_stream() };
        StreamBody::new(stream::iter(frames).chain(rest))
    }

    #[tokio::test]
    async fn a_message_is_read_from_any_pieces() {
        let sent = b"\0\0\0\0\x03abc";
        for cut in 0..=sent.len() {
            let (start, end) = sent.split_at(cut);
            let read = read_message(body(&[start, end], true), &bounds(1_000)).await;
            assert_eq!(read.as_deref(), Ok(&b"abc"[..]), "cut at {cut}");
        }
        let single: Vec<&[u8]> = sent.chunks(1).collect();
        let read = read_message(body(&single, true), &bounds(1_000)).await;
        assert_eq!(read.as_deref(), Ok(&b"abc"[..]));
        let read = read_message(body(&[sent, b""], true), &bounds(1_000)).await;
        assert_eq!(read.as_deref(), Ok(&b"abc"[..]), "the frame that ends a call is empty");
        let empty = read_message(http_body_util::Full::new(Bytes::from_static(&[0; 5])), &bounds(0)).await;
        assert_eq!(empty.as_deref(), Ok(&b""[..]), "a whole message is not counted");
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_message_is_named() {
        let too_large = long_message(9, MAX);
        // (frames, whether the body ends after them, error)
        let table: [(&[&[u8]], bool, NoDecision); 7] = [
            (&[], true, MISSING),
            (&[b"\0\0\0\0"], true, TRUNCATED),
            (&[b"\0\0\0\0\x02a"], true, TRUNCATED),
            (&[b"\0\0\0\0\x01a", b"\0\0\0\0\0"], true, SEVERAL),
            // Refused before the rest arrives.
            (&[b"\x01\0\0\0\x01"], false, NoDecision::COMPRESSED),
            (&[b"\0\0\0", b"\0\x09"], false, too_large.clone()),
            (&[b"\0\0\0\0\x09a"], false, too_large),
        ];
        for (frames, ends, error) in table {
            let read = read_message(body(frames, ends), &bounds(1_000)).await;
            assert_eq!(read, Err(error), "{frames:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_does_not_arrive_in_time_is_refused() {
        let start = Instant::now();
        let read = read_message(body(&[b"\0\0\0\0\x02a"], false), &bounds(1_000)).await;
        assert_eq!(read, Err(NoDecision::LATE));
        assert_eq!(start.elapsed(), ARRIVES_WITHIN);
        let text = format!("the request did not arrive completely within {ARRIVES_WITHIN:?}");
        assert_eq!(NoDecision::LATE.to_string(), text);
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_messages_share_a_bound_of_bytes() {
        let bounds = bounds(PREFIX_BYTES + MAX);
        let half = || body(&[b"\0\0\0\0\x08abc"], false);
        let (mut first, mut second) =
            (Box::pin(read_message(half(), &bounds)), Box::pin(read_message(half(), &bounds)));
        assert_eq!(first.as_mut().now_or_never(), None, "waits for the rest");
        assert_eq!(second.as_mut().now_or_never(), Some(Err(NoDecision::MANY_BYTES)));
        drop(first);
        assert_eq!(Box::pin(read_message(half(), &bounds)).as_mut().now_or_never(), None);
    }
}
