//! Files of a log: plain, compressed, or standard input.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::piped::{Piped, StopReading};

const BUFFER_BYTES: usize = 256 * 1024;

/// A file of the log that is open.
pub struct Input {
    /// As given; `-` for standard input.
    pub name: String,
    /// The size of the file, compressed if it is; `None` for a stream.
    pub size: Option<u64>,
    /// Bytes read so far of this size.
    pub read_bytes: ReadBytes,
    /// Ends a stream that may be silent for long: standard input or a pipe. Has no effect on a file.
    pub stop: StopReading,
    pub(in crate::simulate) stream: Box<dyn Read + Send>,
}

/// A number of bytes that another thread may read.
#[derive(Clone, Debug, Default)]
pub struct ReadBytes(Arc<AtomicU64>);

impl ReadBytes {
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A file that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {cause}")]
pub struct InputError {
    pub path: String,
    #[source]
    pub cause: io::Error,
}

impl Input {
    /// Opens a file, or standard input for `-`. The ending `.gz` or `.zst` says that a file is compressed.
    ///
    /// # Errors
    /// [`InputError`] if the file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let name = path.display().to_string();
        if name == "-" {
            return Self::from_pipe(name, io::stdin(), &PathBuf::new());
        }
        let failed = |cause| InputError { path: name.clone(), cause };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            return Self::from_pipe(name, file, path);
        }
        Ok(Self::from_stream(name, Some(metadata.len()), file, path))
    }

    fn from_pipe(name: String, stream: impl Read + Send + 'static, path: &Path) -> Result<Self, InputError> {
        let stop = StopReading::default();
        match Piped::new(stream, stop.clone()) {
            Ok(piped) => Ok(Self { stop, ..Self::from_stream(name, None, piped, path) }),
            Err(cause) => Err(InputError { path: name, cause }),
        }
    }

    fn from_stream(name: String, size: Option<u64>, stream: impl Read + Send + 'static, path: &Path) -> Self {
        let read_bytes = ReadBytes::default();
        let counted = Counted { stream, read_bytes: read_bytes.clone() };
        let buffered = BufReader::with_capacity(BUFFER_BYTES, counted);
        let stream: Box<dyn Read + Send> = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Box::new(MultiGzDecoder::new(buffered)),
            Some("zst") => Box::new(ZstdFrames::new(buffered)),
            _ => Box::new(buffered),
        };
        Self { name, size, read_bytes, stop: StopReading::default(), stream }
    }
}

/// Counts what is read from a stream.
struct Counted<R> {
    stream: R,
    read_bytes: ReadBytes,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.read_bytes.0.fetch_add(read as u64, Ordering::Relaxed);
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

    /// Starts the next frame. Returns false at the end of the file.
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
