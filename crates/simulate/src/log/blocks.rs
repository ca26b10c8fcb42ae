//! Whole lines in blocks: a block is what one parser gets at once.

use std::io::{self, Read};

/// Bytes of a usual block: large enough that handing it over costs nothing beside parsing it.
const BLOCK_BYTES: usize = 256 * 1024;
/// Longer lines are not parsed: only their beginning is kept.
pub(crate) const MAX_LINE_BYTES: usize = 1024 * 1024;

/// Whole lines of one file.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The number of the first line, from 1.
    pub first_line: u64,
    pub bytes: Vec<u8>,
}

impl Block {
    /// Removes lines at the start.
    pub fn remove_lines(&mut self, count: u64) {
        let ends = memchr::memchr_iter(b'\n', &self.bytes).map(|end| end + 1);
        let end = ends.take(usize::try_from(count).unwrap_or(usize::MAX)).last().unwrap_or(self.bytes.len());
        self.bytes.drain(..end);
        self.first_line += count;
    }
}

/// Splits a stream into blocks.
pub(crate) struct BlockReader<R> {
    stream: R,
    /// The beginning of a line whose end is not read yet.
    unfinished: Vec<u8>,
    next_line: u64,
    /// The bytes of earlier blocks, to be used again: memory that is in a cache.
    spare: Vec<Vec<u8>>,
    /// The rest of the line is skipped, because it is too long.
    is_skipping: bool,
    is_at_end: bool,
}

impl<R: Read> BlockReader<R> {
    pub fn new(stream: R) -> Self {
        Self {
            stream,
            unfinished: Vec::new(),
            next_line: 1,
            spare: Vec::new(),
            is_skipping: false,
            is_at_end: false,
        }
    }

    /// Takes back the bytes of blocks that are not used any more.
    pub fn reuse(&mut self, bytes: impl IntoIterator<Item = Vec<u8>>) {
        self.spare.extend(bytes);
    }

    /// The next block; `None` at the end of the stream. After an error the next call returns what was read before it,
    /// and then `None`.
    pub fn next_block(&mut self) -> io::Result<Option<Block>> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.append(&mut self.unfinished);
        while !self.is_at_end {
            let start = bytes.len();
            bytes.resize(start + BLOCK_BYTES, 0);
            let read = match self.read_some(&mut bytes[start..]) {
                Ok(read) => read,
                Err(error) => {
                    bytes.truncate(start);
                    self.unfinished = bytes;
                    self.is_at_end = true;
                    return Err(error);
                }
            };
            bytes.truncate(start + read);
            self.is_at_end = read == 0;
            self.drop_skipped(&mut bytes, start);
            if let Some(end) = memchr::memrchr(b'\n', &bytes[start..]) {
                self.unfinished.extend_from_slice(&bytes[start + end + 1..]);
                bytes.truncate(start + end + 1);
                break;
            }
            if bytes.len() > MAX_LINE_BYTES {
                // One byte more than allowed, so that the parser reports it.
                bytes.truncate(MAX_LINE_BYTES + 1);
                self.is_skipping = true;
                break;
            }
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        let first_line = self.next_line;
        let ends = memchr::memchr_iter(b'\n', &bytes).count() as u64;
        self.next_line += ends + u64::from(bytes.last() != Some(&b'\n'));
        if first_line == 1 && bytes.starts_with(b"\xef\xbb\xbf") {
            bytes.drain(..3);
        }
        Ok(Some(Block { first_line, bytes }))
    }

    /// Reads until the buffer is full or the stream ends.
    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.stream.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The bytes before the error are lines too: the error comes again with the next call.
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Removes the rest of a line that is too long from the bytes read at `start`.
    fn drop_skipped(&mut self, bytes: &mut Vec<u8>, start: usize) {
        if !self.is_skipping {
            return;
        }
        match memchr::memchr(b'\n', &bytes[start..]) {
            Some(end) => {
                bytes.drain(start..=start + end);
                self.is_skipping = false;
            }
            None => bytes.truncate(start),
        }
    }
}

/// The lines of a block with their numbers, without line ends; blank ones are left out.
pub(crate) fn lines(block: &Block) -> impl Iterator<Item = (u64, &[u8])> {
    let (bytes, mut start) = (block.bytes.as_slice(), 0);
    let ends = memchr::memchr_iter(b'\n', bytes).chain(std::iter::once(bytes.len()));
    ends.zip(block.first_line..).filter_map(move |(end, number)| {
        let line = &bytes[start..end];
        start = end + 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        (!line.iter().all(u8::is_ascii_whitespace)).then_some((number, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns at most this many bytes at once, and then an error.
    struct Stream<'t>(&'t [u8], usize, Option<io::ErrorKind>);

    impl Read for Stream<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let length = self.0.len().min(self.1).min(buffer.len());
            if let (0, Some(kind)) = (length, self.2) {
                return Err(kind.into());
            }
            buffer[..length].copy_from_slice(&self.0[..length]);
            self.0 = &self.0[length..];
            Ok(length)
        }
    }

    fn read_all(text: &[u8], step: usize) -> Vec<(u64, Vec<u8>)> {
        let mut reader = BlockReader::new(Stream(text, step, None));
        let mut found = Vec::new();
        while let Some(block) = reader.next_block().expect("readable") {
            found.extend(lines(&block).map(|(number, line)| (number, line.to_vec())));
        }
        found
    }

    #[test]
    fn lines_keep_their_numbers_across_blocks() {
        let text: Vec<u8> = (1..=100_000).flat_map(|line| format!("line {line}\n").into_bytes()).collect();
        for step in [1_000, 262_144, 1_000_000] {
            let found = read_all(&text, step);
            assert_eq!(found.len(), 100_000);
            let is_right = |(number, line): &(u64, Vec<u8>)| *line == format!("line {number}").into_bytes();
            assert!(found.iter().all(is_right));
        }
    }

    #[test]
    fn byte_order_mark_blank_lines_and_carriage_returns_are_dropped() {
        let found = read_all(b"\xef\xbb\xbfa\r\n\r\n  \nb", 7);
        assert_eq!(found, [(1, b"a".to_vec()), (4, b"b".to_vec())]);
        assert_eq!(read_all(b"", 7), []);
        assert_eq!(read_all(b"\n\n", 7), []);
    }

    #[test]
    fn a_line_that_is_too_long_takes_no_more_memory_than_the_longest_and_hides_no_other() {
        let mut text = b"first\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', 3 * MAX_LINE_BYTES));
        text.extend_from_slice(b"\nlast\n");
        let found = read_all(&text, BLOCK_BYTES);
        let lengths: Vec<_> = found.iter().map(|(number, line)| (*number, line.len())).collect();
        assert_eq!(lengths, [(1, 5), (2, MAX_LINE_BYTES + 1), (3, 4)]);
    }

    #[test]
    fn an_error_comes_after_the_lines_before_it() {
        let mut reader = BlockReader::new(Stream(b"a\nb", 10, Some(io::ErrorKind::UnexpectedEof)));
        let block = reader.next_block().expect("readable").expect("a block");
        assert_eq!(lines(&block).count(), 1);
        assert!(reader.next_block().is_err());
        let rest = reader.next_block().expect("the unfinished line").expect("a block");
        assert_eq!(
            lines(&rest).map(|(number, line)| (number, line.to_vec())).collect::<Vec<_>>(),
            [(2, b"b".to_vec())]
        );
        assert!(reader.next_block().expect("the end").is_none());
    }
}
