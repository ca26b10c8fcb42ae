//! What h2 reads and writes of a connection: two duties that h2 leaves to its user.
//!
//! In one poll of its task a connection reads only a few requests, so that its calls do not delay the calls of other
//! connections. And a header block in several frames is passed on when
//! the whole block has arrived: h2 would decode each frame at once, and HPACK can make a hundred bytes in memory of one
//! byte that is sent. So an unfinished block takes only the bytes that its client has sent. They count as bytes of
//! unfinished requests, and the block must arrive within the same time as a message.
//!
//! h2 keeps trailers of any length until they are read. Calls of gRPC have none, so the connection ends if trailers are
//! long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::open_calls::ConnectionCounts;
use crate::decide::NoDecision;
use crate::grpc::tonic_server::MAX_READ_HEADER_BYTES;
use crate::net::unfinished::{ARRIVES_WITHIN, HeldBytes, UnfinishedBytes};

pub(super) const PREFACE_BYTES: usize = 24;
pub(super) const FRAME_HEAD_BYTES: usize = 9;
pub(super) const HEADERS: u8 = 1;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_HEADERS: u8 = 4;
/// The first bit of the number is reserved.
const STREAM_BITS: u32 = 0x7fff_ffff;
/// The longest trailers of one call. A longer block ends the connection.
pub(super) const MAX_TRAILER_BYTES: usize = 256;
/// A connection reads at most this many bytes in one poll of its task, some 30 requests. Without a bound, all calls
/// that a client has sent at once would start before a call of another client.
pub(super) const BYTES_PER_POLL: usize = 2 * 1024;
/// The longest block that is held. A block of this many bytes has more CONTINUATION frames of at most 16 KiB than h2
/// takes for a list of that length (80). So h2 ends the connection, and keeps nothing of the block.
const MAX_HELD_BYTES: usize = 84 * (16 * 1024 + FRAME_HEAD_BYTES);
/// The bytes of a block that are read at once.
const READ_BYTES: usize = 2 * 1024;

const LONG_TRAILERS: NoDecision = NoDecision::invalid("the trailers of a call are too long");

/// The bytes that a connection may still read in this poll of its task. Clones share them.
///
/// A read that is pending once would not end the poll, because h2 reads again for each call that it accepts. So the
/// task refills the budget when its poll begins.
#[derive(Clone, Debug)]
pub(super) struct ReadBudget {
    left: Arc<AtomicUsize>,
    bytes_per_poll: usize,
}

impl ReadBudget {
    pub(super) fn new(bytes_per_poll: usize) -> Self {
        Self { left: Arc::new(AtomicUsize::new(bytes_per_poll)), bytes_per_poll }
    }

    pub(super) fn refill(&self) {
        self.left.store(self.bytes_per_poll, Ordering::Relaxed);
    }

    pub(super) fn bytes_left(&self) -> usize {
        self.left.load(Ordering::Relaxed)
    }

    fn record_read(&self, bytes: usize) {
        self.left.store(self.bytes_left().saturating_sub(bytes), Ordering::Relaxed);
    }
}

/// A connection between its socket and h2.
pub(super) struct ConnectionIo<I> {
    stream: I,
    budget: ReadBudget,
    frames: SentFrames,
    /// The bytes from the first frame of an unfinished block on, as far as they have arrived.
    held: Vec<u8>,
    /// How many bytes of `held` may be passed on.
    ready: usize,
    /// How many bytes of `held` are passed on.
    passed: usize,
    /// Counts the bytes of `held`.
    share: Option<HeldBytes>,
    /// Ends the connection if the block does not arrive in time.
    block_timeout: Option<Pin<Box<Sleep>>>,
    unfinished: UnfinishedBytes,
    counts: Arc<ConnectionCounts>,
}

impl<I> ConnectionIo<I> {
    pub(super) fn new(
        stream: I,
        budget: ReadBudget,
        unfinished: UnfinishedBytes,
        counts: Arc<ConnectionCounts>,
    ) -> Self {
        Self {
            stream,
            budget,
            frames: SentFrames::default(),
            held: Vec::new(),
            ready: 0,
            passed: 0,
            share: None,
            block_timeout: None,
            unfinished,
            counts,
        }
    }

    pub(super) fn read_budget(&self) -> ReadBudget {
        self.budget.clone()
    }

    /// Adds bytes to those that are held. All bytes that are ready have been passed on before.
    fn hold(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.held.drain(..self.passed);
        (self.ready, self.passed) = (0, 0);
        let (mut position, mut rest) = (self.held.len(), bytes);
        self.held.extend_from_slice(bytes);
        while let Some(at) = self.frames.advance(rest) {
            (position, rest) = (position + at, &rest[at..]);
            self.ready = position;
        }
        if self.frames.has_long_trailers {
            return Err(self.refuse(LONG_TRAILERS));
        }
        if !self.frames.in_block {
            self.ready = self.held.len();
        } else if self.held.len() - self.ready > MAX_HELD_BYTES {
            self.frames.in_block = false;
            self.ready = self.held.len();
        } else {
            let share = self.share.get_or_insert_with(|| self.unfinished.hold_none());
            if !share.grow_to(self.held.len()) {
                return Err(self.refuse(NoDecision::MANY_BYTES));
            }
        }
        if self.ready > MAX_READ_HEADER_BYTES as usize {
            // h2 refuses such a block.
            self.counts.record(NoDecision::UNREAD_HEADERS);
        }
        Ok(())
    }

    /// Counts a call without a decision; the connection cannot go on.
    fn refuse(&self, error: NoDecision) -> io::Error {
        io::Error::other(self.counts.record(error))
    }

    /// Passes on what is ready.
    fn pass_on(&mut self, buf: &mut ReadBuf<'_>) {
        let bytes = (self.ready - self.passed).min(buf.remaining());
        buf.put_slice(&self.held[self.passed..][..bytes]);
        self.passed += bytes;
        if self.passed == self.held.len() {
            (self.held, self.share, self.block_timeout) = (Vec::new(), None, None);
            (self.ready, self.passed) = (0, 0);
        }
    }
}

impl<I: AsyncRead + Unpin> ConnectionIo<I> {
    /// Reads what the budget allows.
    fn poll_stream(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = self.budget.bytes_left().min(buf.remaining());
        if most == 0 {
            // This wakes the task: the runtime polls it again after the tasks that are ready now.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        let read = part.filled().len();
        buf.advance(read);
        self.budget.record_read(read);
        polled
    }
}

/// Passes on all bytes but those of an unfinished header block.
impl<I: AsyncRead + Unpin> AsyncRead for ConnectionIo<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.frames.in_block && this.ready == this.passed {
            let mut bytes = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut bytes);
            let arrived = this.poll_stream(cx, &mut read)?;
            if arrived.is_pending() {
                let timeout = this.block_timeout.get_or_insert_with(|| Box::pin(sleep(ARRIVES_WITHIN)));
                ready!(timeout.as_mut().poll(cx));
                return Poll::Ready(Err(this.refuse(NoDecision::LATE)));
            }
            if read.filled().is_empty() {
                // The client has left.
                return Poll::Ready(Ok(()));
            }
            this.hold(read.filled())?;
        }
        if this.ready > this.passed {
            this.pass_on(buf);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(this.poll_stream(cx, buf))?;
        let read = &buf.filled()[before..];
        let begin = this.frames.advance(read);
        if this.frames.has_long_trailers {
            return Poll::Ready(Err(this.refuse(LONG_TRAILERS)));
        }
        if let Some(at) = begin {
            // The head of the first frame of a block is passed on; the rest of the block is held.
            this.hold(&read[at..])?;
            buf.set_filled(before + at);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for ConnectionIo<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Finds where the header blocks of several frames begin and end among the frames that a client sends, and the
/// trailers. Reads the heads of frames only: a call whose headers fit into one frame passes unchanged.
struct SentFrames {
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    /// The bytes of the current frame that are missing.
    bytes_left: usize,
    /// Whether the next frame belongs to a header block of several frames.
    in_block: bool,
    /// Whether the current frame is the last of its block.
    is_last: bool,
    /// The number of the last stream.
    stream: u32,
    has_long_trailers: bool,
}

impl Default for SentFrames {
    fn default() -> Self {
        Self {
            head: [0; FRAME_HEAD_BYTES],
            head_bytes: 0,
            bytes_left: PREFACE_BYTES,
            in_block: false,
            is_last: false,
            stream: 0,
            has_long_trailers: false,
        }
    }
}

impl SentFrames {
    /// Advances to the next position in `bytes` where a block of several frames begins or ends, and returns it. If
    /// there is none, advances to the end, and returns `None`.
    fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut rest = bytes;
        loop {
            let payload = self.bytes_left.min(rest.len());
            rest = &rest[payload..];
            self.bytes_left -= payload;
            if self.bytes_left == 0 && self.is_last {
                (self.is_last, self.in_block) = (false, false);
                return Some(bytes.len() - rest.len());
            }
            let head = self.take_head(&mut rest)?;
            if self.begins_or_ends_block(head) {
                return Some(bytes.len() - rest.len());
            }
        }
    }

    /// The head of the next frame, once it has arrived. Most heads arrive as a whole.
    fn take_head(&mut self, bytes: &mut &[u8]) -> Option<[u8; FRAME_HEAD_BYTES]> {
        if bytes.is_empty() {
            return None;
        }
        if self.head_bytes == 0
            && let Some((head, rest)) = bytes.split_first_chunk()
        {
            *bytes = rest;
            return Some(*head);
        }
        while self.head_bytes < FRAME_HEAD_BYTES {
            let (&byte, rest) = bytes.split_first()?;
            self.head[self.head_bytes] = byte;
            (self.head_bytes, *bytes) = (self.head_bytes + 1, rest);
        }
        self.head_bytes = 0;
        Some(self.head)
    }

    /// Records the head of a frame. Returns whether a block of several frames begins or breaks off behind it.
    fn begins_or_ends_block(&mut self, head: [u8; FRAME_HEAD_BYTES]) -> bool {
        let [high, middle, low, kind, flags, stream @ ..] = head;
        self.bytes_left = u32::from_be_bytes([0, high, middle, low]) as usize;
        let ends = flags & END_HEADERS != 0;
        if kind == HEADERS {
            let stream = u32::from_be_bytes(stream) & STREAM_BITS;
            // The number of each call is greater than the number of the call before.
            let is_trailers = stream <= self.stream;
            self.has_long_trailers |= is_trailers && (self.bytes_left > MAX_TRAILER_BYTES || !ends);
            self.stream = self.stream.max(stream);
        }
        match kind {
            HEADERS if !self.in_block => self.in_block = !ends,
            CONTINUATION if self.in_block => self.is_last = ends,
            // h2 answers this error of the client.
            _ if self.in_block => {
                self.in_block = false;
                return true;
            }
            _ => {}
        }
        kind == HEADERS && self.in_block
    }
}
