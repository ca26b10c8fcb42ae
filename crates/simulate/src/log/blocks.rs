//! Splits a log into blocks of whole lines: one block is the unit of work of a parser.

use std::io::{self, BufRead, BufReader, Read};

/// Usual size of a block, up to the end of its last line: large enough that handing it over costs nothing compared with
/// parsing it.
const BLOCK_BYTES: usize = 256 * 1024;
/// Longer lines are not parsed: only their beginning is kept.
pub(crate) const MAX_LINE_BYTES: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Number of the first line, from 1.
    pub first_line: u64,
    pub bytes: Vec<u8>,
}

impl Block {
    /// Removes the first `count` lines.
    pub fn remove_lines(&mut self, count: u64) {
        let ends = memchr::memchr_iter(b'\n', &self.bytes).map(|end| end + 1);
        let end = ends.take(usize::try_from(count).unwrap_or(usize::MAX)).last().unwrap_or(self.bytes.len());
        self.bytes.drain(..end);
        self.first_line += count;
    }
}

pub(crate) struct BlockReader<R> {
    stream: BufReader<R>,
    next_line: u64,
    /// An error that came after the lines of the last block.
    error: Option<io::Error>,
    has_failed: bool,
}

impl<R: Read> BlockReader<R> {
    pub fn new(stream: R) -> Self {
        let stream = BufReader::with_capacity(BLOCK_BYTES, stream);
        Self { stream, next_line: 1, error: None, has_failed: false }
    }

    /// The next block; `None` at the end of the stream, and after an error.
    ///
    /// # Errors
    /// If the stream cannot be read, after the lines before the error.
    pub fn next_block(&mut self) -> io::Result<Option<Block>> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let mut bytes = Vec::with_capacity(BLOCK_BYTES);
        if !self.has_failed
            && let Err(error) = self.read_lines(&mut bytes)
        {
            self.has_failed = true;
            if bytes.is_empty() {
                return Err(error);
            }
            self.error = Some(error);
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

    /// Reads lines until they fill a block or the stream ends. After an error `bytes` has the lines before it.
    fn read_lines(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.stream.by_ref().take(BLOCK_BYTES as u64).read_to_end(bytes)?;
        if bytes.last().is_none_or(|last| *last == b'\n') {
            return Ok(());
        }
        let rest = self.stream.by_ref().take(MAX_LINE_BYTES as u64).read_until(b'\n', bytes)?;
        if rest == MAX_LINE_BYTES && bytes.last() != Some(&b'\n') {
            // The line is too long: the parser reports its beginning.
            self.stream.skip_until(b'\n')?;
        }
        Ok(())
    }
}

/// The lines of a block with their numbers, without line ends and blank lines.
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

    /// Returns at most this many bytes per read, and then an error.
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
        let [(1, 5), (2, long), (3, 4)] = lengths[..] else { panic!("{lengths:?}") };
        assert!((MAX_LINE_BYTES + 1..=MAX_LINE_BYTES + BLOCK_BYTES).contains(&long), "{long}");
    }

    #[test]
    fn an_error_comes_after_the_lines_before_it() {
        let mut reader = BlockReader::new(Stream(b"a\nb", 10, Some(io::ErrorKind::UnexpectedEof)));
        let block = reader.next_block().expect("readable").expect("a block");
        let found: Vec<_> = lines(&block).collect();
        assert_eq!(found, [(1, &b"a"[..]), (2, b"b")]);
        assert!(reader.next_block().is_err());
        assert!(reader.next_block().expect("the end").is_none());
    }
}
