//! Stands between a connection and h2. A header block in several frames is passed on when the whole block has arrived.
//! h2 would decode each frame at once, and HPACK can make a hundred bytes in memory of one byte that is sent. So an
//! unfinished block takes only the bytes that its client has sent. They count as bytes of unfinished requests, and the
//! block must arrive within the same time as a message.
//!
//! h2 keeps trailers of any length until they are read. Calls of gRPC have none, so the connection ends if trailers are
//! long.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::decide::NoDecision;
use crate::grpc::open_calls::ConnectionCalls;
use crate::net::unfinished::{ARRIVES_WITHIN, HeldBytes, UnfinishedBytes};

pub(in crate::grpc) const PREFACE_BYTES: usize = 24;
pub(in crate::grpc) const FRAME_HEAD_BYTES: usize = 9;
pub(in crate::grpc) const HEADERS: u8 = 1;
pub(in crate::grpc) const CONTINUATION: u8 = 9;
pub(in crate::grpc) const END_HEADERS: u8 = 4;
/// The first bit of the number is reserved.
const STREAM_BITS: u32 = 0x7fff_ffff;
/// The longest trailers of one call. A longer block ends the connection.
pub(in crate::grpc) const MAX_TRAILER_BYTES: usize = 256;
/// The longest list of headers that h2 reads, as h2 counts it. It is far above what a call may have. This service
/// refuses, counts and answers a call between the two bounds like other invalid calls. h2 itself answers a longer list
/// with 431, and this service never sees it.
pub(in crate::grpc) const MAX_READ_HEADER_BYTES: u32 = 1024 * 1024;
/// The longest block that is held. A block of this many bytes has more CONTINUATION frames of at most 16 KiB than h2
/// takes for a list of that length (80). So h2 ends the connection, and keeps nothing of the block.
const MAX_HELD_BYTES: usize = 84 * (16 * 1024 + FRAME_HEAD_BYTES);
/// The bytes of a block that are read at once.
const READ_BYTES: usize = 2 * 1024;

/// A connection whose header blocks arrive as a whole.
pub(in crate::grpc) struct HeaderBlocks<I> {
    io: I,
    frames: SentFrames,
    /// The bytes from the first frame of an unfinished block on, as far as they have arrived.
    held: Vec<u8>,
    /// How many bytes of `held` may be passed on.
    ready: usize,
    /// How many bytes of `held` are passed on.
    passed: usize,
    share: Option<HeldBytes>,
    /// Ends the connection if the block does not arrive in time.
    late: Option<Pin<Box<Sleep>>>,
    unfinished: UnfinishedBytes,
    counts: Arc<ConnectionCalls>,
}

impl<I> HeaderBlocks<I> {
    pub(in crate::grpc) fn new(io: I, unfinished: UnfinishedBytes, counts: Arc<ConnectionCalls>) -> Self {
        Self {
            io,
            frames: SentFrames::default(),
            held: Vec::new(),
            ready: 0,
            passed: 0,
            share: None,
            late: None,
            unfinished,
            counts,
        }
    }

    /// Adds bytes to those that are held. All bytes that are ready have been passed on before.
    fn hold(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.held.drain(..self.passed);
        (self.ready, self.passed) = (0, 0);
        let (mut place, mut rest) = (self.held.len(), bytes);
        self.held.extend_from_slice(bytes);
        while let Some(at) = self.frames.advance(rest) {
            (place, rest) = (place + at, &rest[at..]);
            self.ready = place;
        }
        if self.frames.has_long_trailers {
            return Err(self.refuse(NoDecision::LongTrailers));
        }
        if !self.frames.in_block {
            self.ready = self.held.len();
        } else if self.held.len() - self.ready > MAX_HELD_BYTES {
            self.frames.in_block = false;
            self.ready = self.held.len();
        } else {
            let share = self.share.get_or_insert_with(|| self.unfinished.hold_none());
            if !share.grow_to(self.held.len()) {
                return Err(self.refuse(NoDecision::ManyBytes));
            }
        }
        if self.ready > MAX_READ_HEADER_BYTES as usize {
            // h2 refuses such a block.
            self.counts.record(NoDecision::UnreadHeaders);
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
            (self.held, self.share, self.late) = (Vec::new(), None, None);
            (self.ready, self.passed) = (0, 0);
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for HeaderBlocks<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.frames.in_block && this.ready == this.passed {
            let mut bytes = [0; READ_BYTES];
            let mut read = ReadBuf::new(&mut bytes);
            let arrived = Pin::new(&mut this.io).poll_read(cx, &mut read)?;
            if arrived.is_pending() {
                let late = this.late.get_or_insert_with(|| Box::pin(sleep(ARRIVES_WITHIN)));
                ready!(late.as_mut().poll(cx));
                return Poll::Ready(Err(this.refuse(NoDecision::Late(ARRIVES_WITHIN))));
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
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        let read = &buf.filled()[before..];
        let begin = this.frames.advance(read);
        if this.frames.has_long_trailers {
            return Poll::Ready(Err(this.refuse(NoDecision::LongTrailers)));
        }
        if let Some(at) = begin {
            // The head of the first frame of a block is passed on; the rest of the block is held.
            this.hold(&read[at..])?;
            buf.set_filled(before + at);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for HeaderBlocks<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// Follows the frames that a client sends: where header blocks of several frames begin and end, and which blocks are
/// trailers. Reads the heads of frames only.
struct SentFrames {
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    /// The bytes of the current frame that are missing.
    bytes_left: usize,
    /// Whether the next frame belongs to a header block of several frames.
    in_block: bool,
    /// Whether the current frame is the last of its block.
    is_last: bool,
    /// The number of the last call.
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
    /// Advances to the next place where a block of several frames begins or ends, and returns its place in `bytes`;
    /// `None`, and advances to the end, if there is none.
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
