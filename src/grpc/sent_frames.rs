//! Where the header blocks begin and end among the HTTP/2 frames that a client sends. Off the usual road: a call whose
//! headers fit into one frame passes here unchanged.

pub(super) const PREFACE_BYTES: usize = 24;
pub(super) const FRAME_HEAD_BYTES: usize = 9;
pub(super) const HEADERS: u8 = 1;
pub(super) const CONTINUATION: u8 = 9;
pub(super) const END_HEADERS: u8 = 4;
/// The first bit of the number is reserved.
const STREAM_BITS: u32 = 0x7fff_ffff;
/// The longest trailers of one call. A longer block ends the connection.
pub(super) const MAX_TRAILER_BYTES: usize = 256;

/// Finds the header blocks of several frames, and the trailers. Reads the heads of frames only.
pub(super) struct SentFrames {
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    /// The bytes of the current frame that are missing.
    bytes_left: usize,
    /// Whether the next frame belongs to a header block of several frames.
    pub(super) in_block: bool,
    /// Whether the current frame is the last of its block.
    is_last: bool,
    /// The number of the last stream.
    stream: u32,
    pub(super) has_long_trailers: bool,
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
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Option<usize> {
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
