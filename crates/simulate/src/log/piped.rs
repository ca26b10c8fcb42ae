//! Reads a stream that may be silent for long, such as standard input, in a separate thread, so that its reader can
//! stop.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

const CHUNK_BYTES: usize = 64 * 1024;
/// Chunks in the queue.
const WAITING_CHUNKS: usize = 8;
/// How often a blocked reader checks the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(super) struct Piped {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    /// Bytes of `chunk` already read.
    read: usize,
    /// Ends the stream.
    stop: Arc<AtomicBool>,
}

impl Piped {
    /// Reads `stream` in a thread that ends with the stream, or after the next chunk once the reader is gone.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn new(mut stream: impl Read + Send + 'static, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let (sender, chunks) = sync_channel(WAITING_CHUNKS);
        let read_all = move || {
            loop {
                let mut chunk = vec![0; CHUNK_BYTES];
                let read = match stream.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(read) => Ok(read),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => Err(error),
                };
                let is_last = read.is_err();
                let chunk = read.map(|read| {
                    chunk.truncate(read);
                    chunk
                });
                if sender.send(chunk).is_err() || is_last {
                    return;
                }
            }
        };
        thread::Builder::new().name("log".to_owned()).spawn(read_all)?;
        Ok(Self { chunks, chunk: Vec::new(), read: 0, stop })
    }
}

impl Read for Piped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.chunk.len() {
            // Still reads whatever arrived before `stop` was set.
            let patience = if self.stop.load(Ordering::Relaxed) { Duration::ZERO } else { LOOK_EVERY };
            match self.chunks.recv_timeout(patience) {
                Ok(chunk) => (self.chunk, self.read) = (chunk?, 0),
                Err(RecvTimeoutError::Timeout) if patience.is_zero() => return Ok(0),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        let rest = &self.chunk[self.read..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.read += length;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_to_its_end_and_with_its_error() {
        let text: Vec<u8> = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
        let mut found = Vec::new();
        let mut piped = Piped::new(io::Cursor::new(text.clone()), Arc::default()).expect("a thread");
        piped.read_to_end(&mut found).expect("readable");
        assert_eq!(found, text);

        struct Faulty;
        impl Read for Faulty {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let mut piped = Piped::new(Faulty, Arc::default()).expect("a thread");
        let error = piped.read(&mut [0; 8]).expect_err("an error");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(piped.read(&mut [0; 8]).expect("the end"), 0);
    }

    #[test]
    fn a_silent_stream_ends_when_it_is_told_to() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        io::Write::write_all(&mut writer, b"abc").expect("room in the pipe");
        let stop = Arc::new(AtomicBool::new(false));
        let mut piped = Piped::new(reader, Arc::clone(&stop)).expect("a thread");
        let mut buffer = [0; 8];
        assert_eq!(piped.read(&mut buffer).expect("readable"), 3);
        let reading = thread::spawn(move || piped.read(&mut [0; 8]));
        stop.store(true, Ordering::Relaxed);
        assert_eq!(reading.join().expect("no panic").expect("the end"), 0);
        drop(writer);
    }
}
