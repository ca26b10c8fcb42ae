//! Opens the files of a log or standard input, plain or compressed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::piped::Piped;

const BUFFER_BYTES: usize = 256 * 1024;

/// An open file of the log.
pub struct Input {
    /// As given; `-` for standard input.
    pub name: String,
    /// Size of the file as stored, in bytes; `None` for a stream.
    pub size: Option<u64>,
    /// Bytes read of this size.
    pub read_bytes: Arc<AtomicU64>,
    /// Decompressed.
    pub stream: Box<dyn Read + Send>,
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct InputError {
    pub path: String,
    #[source]
    pub cause: io::Error,
}

impl Input {
    /// Opens a file, or standard input for `-`. Recognizes compression by the first bytes. `stop` ends a stream that
    /// may be silent for long, standard input or a pipe; it has no effect on a file.
    ///
    /// # Errors
    /// [`InputError`] if the file cannot be opened.
    pub fn open(path: &Path, stop: &Arc<AtomicBool>) -> Result<Self, InputError> {
        let name = path.display().to_string();
        if name == "-" {
            return Self::from_pipe(name, io::stdin(), stop);
        }
        let failed = |cause| InputError { path: name.clone(), cause };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            return Self::from_pipe(name, file, stop);
        }
        Ok(Self::from_stream(name, Some(metadata.len()), file))
    }

    fn from_pipe(
        name: String,
        stream: impl Read + Send + 'static,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, InputError> {
        match Piped::new(stream, Arc::clone(stop)) {
            Ok(piped) => Ok(Self::from_stream(name, None, piped)),
            Err(cause) => Err(InputError { path: name, cause }),
        }
    }

    fn from_stream(name: String, size: Option<u64>, stream: impl Read + Send + 'static) -> Self {
        let read_bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted { stream, read_bytes: Arc::clone(&read_bytes) };
        let stream = Box::new(Decompressed::Unknown { source: Some(counted) });
        Self { name, size, read_bytes, stream }
    }
}

/// A stream that chooses its decompression when it is first read: a pipe may be silent when it is opened.
enum Decompressed<R> {
    /// Nothing has been read.
    Unknown {
        source: Option<R>,
    },
    Known(Box<dyn Read + Send>),
}

impl<R: Read + Send + 'static> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Known(stream) => stream.read(buffer),
            Self::Unknown { source } => {
                let Some(source) = source.take() else { return Ok(0) };
                *self = Self::Known(decompressed(source)?);
                self.read(buffer)
            }
        }
    }
}

fn decompressed(mut source: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut start = Vec::new();
    source.by_ref().take(10).read_to_end(&mut start)?;
    let whole = io::Cursor::new(start.clone()).chain(source);
    let buffered = BufReader::with_capacity(BUFFER_BYTES, whole);
    Ok(match start[..] {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(buffered)),
        // A frame, or one to skip.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Box::new(ZstdFrames::new(buffered))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => return Err(unread_compression("xz")),
        // The header of the first block must follow: a log may begin with these letters.
        [b'B', b'Z', b'h', _, 0x31, 0x41, 0x59, 0x26, 0x53, 0x59] => return Err(unread_compression("bzip2")),
        _ => Box::new(buffered),
    })
}

/// `program`: the one that compressed the file and can decompress it.
fn unread_compression(program: &str) -> io::Error {
    let reason = format!(
        "it is compressed with {program}, but only gzip (.gz) and Zstandard (.zst) are read; decompress it first: {program} \
         -dc FILE | ratelimitctl simulate ... -"
    );
    io::Error::new(io::ErrorKind::Unsupported, reason)
}

/// Counts the bytes read from a stream.
struct Counted<R> {
    stream: R,
    read_bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.read_bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// The frames of a Zstandard file, one after the other.
struct ZstdFrames<R> {
    source: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(source: R) -> Self {
        Self { source, decoder: FrameDecoder::new(), is_in_frame: false }
    }

    /// Starts the next frame. Returns `false` at the end of the file.
    fn start_frame(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.init(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let mut skipped = (&mut self.source).take(u64::from(length));
                    io::copy(&mut skipped, &mut io::sink())?;
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_in_frame && !self.start_frame()? {
                return Ok(0);
            }
            self.is_in_frame = true;
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one_block = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one_block).map_err(io::Error::other)?;
            }
            let read = self.decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            self.is_in_frame = false;
        }
    }
}
