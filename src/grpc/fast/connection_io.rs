//! Filters a connection's bytes on their way to h2, for what h2 leaves to its user:
//! - A connection reads only a few requests per poll, so that it does not delay others.
//! - A header block in several frames is held until complete, bounded in bytes and time: h2 would decode each frame,
//!   and HPACK can expand one byte to a hundred.
//! - Long trailers, which h2 would keep, end the connection.
//! - Resets of answered calls, which h2 ignores, are recorded for `undelivered`.

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
const RST_STREAM: u8 = 3;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_HEADERS: u8 = 4;
/// The first bit of a stream id is reserved.
const STREAM_BITS: u32 = 0x7fff_ffff;
/// Maximum trailers of one call. A longer block ends the connection; gRPC calls do not have trailers.
pub(super) const MAX_TRAILER_BYTES: usize = 256;
/// Maximum bytes that a connection reads in one poll of its task, some 30 requests. Without a bound, all calls that a
/// client sent together would start before another client's call.
pub(super) const BYTES_PER_POLL: usize = 2 * 1024;
/// Longest block held. A block of this length has more CONTINUATION frames of at most 16 KiB than h2 accepts for a list
/// of that length (80). So h2 ends the connection, and keeps nothing of the block.
const MAX_HELD_BYTES: usize = 84 * (16 * 1024 + FRAME_HEAD_BYTES);
/// Bytes of a block that are read together.
const READ_BYTES: usize = 2 * 1024;

const LONG_TRAILERS: NoDecision = NoDecision::invalid("the trailers of a call are too long");

/// Bytes that a connection can still read in this poll of its task. Clones share them.
///
/// A pending read alone would not end the poll, because h2 reads again for each call that it accepts. So the task
/// refills the budget when its poll begins.
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
    /// Bytes received so far, from the first frame of an unfinished block on.
    held: Vec<u8>,
    /// Bytes of `held` that can be passed on.
    ready: usize,
    /// Bytes of `held` that have been passed on.
    passed: usize,
    /// Counts the bytes of `held`.
    share: Option<HeldBytes>,
    /// Ends the connection if the block is late.
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

    /// Adds to the held bytes. All ready bytes have been passed on already.
    fn hold(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.held.drain(..self.passed);
        (self.ready, self.passed) = (0, 0);
        let (mut position, mut rest) = (self.held.len(), bytes);
        self.held.extend_from_slice(bytes);
        while let Some(at) = self.frames.advance(rest) {
            (position, rest) = (position + at, &rest[at..]);
            self.ready = position;
        }
        self.record_resets();
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

    fn record_resets(&mut self) {
        if !self.frames.resets.is_empty() {
            self.counts.slot_answers.record_resets(&mut self.frames.resets);
        }
    }

    /// Counts a failed call; the connection cannot continue.
    fn refuse(&self, error: NoDecision) -> io::Error {
        io::Error::other(self.counts.record(error))
    }

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
            // Wakes the task: the runtime polls it again after the tasks that are ready now.
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

/// Passes on all bytes except an unfinished header block's.
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
        this.record_resets();
        if this.frames.has_long_trailers {
            return Poll::Ready(Err(this.refuse(LONG_TRAILERS)));
        }
        if let Some(at) = begin {
            // Passes on the first frame's head; holds the rest of the block.
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

/// Finds trailers, and the start and end of header blocks in several frames, in the bytes that a client sends. Reads
/// only frame heads: a call whose headers fit into one frame passes unchanged.
struct SentFrames {
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    /// Bytes missing from the current frame.
    bytes_left: usize,
    /// `true` if the next frame belongs to a header block in several frames.
    in_block: bool,
    /// `true` if the current frame ends its block.
    is_last: bool,
    /// The last stream's id.
    stream: u32,
    has_long_trailers: bool,
    /// Streams that the client reset.
    resets: Vec<u32>,
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
            resets: Vec::new(),
        }
    }
}

impl SentFrames {
    /// Advances to the next position in `bytes` where a block in several frames begins or ends, and returns it. If
    /// there is none, advances to the end and returns `None`.
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

    /// Returns the next frame's head once it has arrived. Most heads arrive whole.
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

    /// Records a frame's head. Returns `true` if a block in several frames begins or breaks off after it.
    fn begins_or_ends_block(&mut self, head: [u8; FRAME_HEAD_BYTES]) -> bool {
        let [high, middle, low, kind, flags, stream @ ..] = head;
        self.bytes_left = u32::from_be_bytes([0, high, middle, low]) as usize;
        let ends = flags & END_HEADERS != 0;
        if kind == HEADERS {
            let stream = u32::from_be_bytes(stream) & STREAM_BITS;
            // Stream ids only increase.
            let is_trailers = stream <= self.stream;
            self.has_long_trailers |= is_trailers && (self.bytes_left > MAX_TRAILER_BYTES || !ends);
            self.stream = self.stream.max(stream);
        }
        match kind {
            HEADERS if !self.in_block => self.in_block = !ends,
            CONTINUATION if self.in_block => self.is_last = ends,
            RST_STREAM if !self.in_block => self.resets.push(u32::from_be_bytes(stream) & STREAM_BITS),
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
