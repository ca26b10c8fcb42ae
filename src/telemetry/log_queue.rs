//! The queue between the threads that log and the only thread that writes the log. A thread that logs never waits: its
//! line is queued at once, or lost and counted. So a reader that is slow or gone delays no decision, and a full disk
//! ends nothing.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// About 20,000 lines: far more than a burst at a level for operators.
const MAX_QUEUED_BYTES: usize = 4 << 20;

/// Lines on their way to the log. Clones share the queue.
#[derive(Clone, Debug, Default)]
pub struct LogQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Notified when a line was queued.
    queued: Condvar,
    /// Notified when no line is left.
    emptied: Condvar,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Box<[u8]>>,
    bytes: usize,
    /// The writing thread has taken a line that it has not written yet.
    is_writing: bool,
}

impl LogQueue {
    /// Starts the thread that writes the lines to `output`. It runs until the process ends.
    ///
    /// # Errors
    /// When the system does not start the thread.
    pub(super) fn start_writing(&self, output: impl Write + Send + 'static) -> io::Result<()> {
        let queue = self.clone();
        // Nothing joins the thread: a reader that has stopped reading can hold it in a write for ever.
        thread::Builder::new().name("log".to_owned()).spawn(move || queue.write_lines(output)).map(drop)
    }

    /// Queues a line, which ends with a newline. When the queue is full the line is lost.
    pub fn push(&self, line: &[u8]) {
        let mut waiting = self.0.waiting.lock();
        // A line that is longer than the bound is taken too, alone: it is in memory already.
        if !waiting.lines.is_empty() && waiting.bytes + line.len() > MAX_QUEUED_BYTES {
            self.0.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line.into());
        drop(waiting);
        self.0.queued.notify_one();
    }

    /// The number of lines that were lost: the queue was full, or the write failed.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.lost.load(Ordering::Relaxed)
    }

    /// Waits until every queued line was written or lost, but not longer than `at_most`.
    pub fn flush(&self, at_most: Duration) {
        let mut waiting = self.0.waiting.lock();
        // Whether the time was over makes no difference to the caller.
        let _ = self.0.emptied.wait_while_for(&mut waiting, |waiting| !waiting.is_empty(), at_most);
    }

    fn write_lines(&self, mut output: impl Write) {
        let mut reported = 0;
        loop {
            let line = self.next_line();
            let written = output.write_all(&line).and_then(|()| output.flush());
            if written.is_err() {
                self.0.lost.fetch_add(1, Ordering::Relaxed);
            }
            let is_empty = self.line_done();
            let lost = self.lost();
            // Only when the log is written again, and has room: the report must not be lost itself.
            if written.is_ok() && is_empty && lost > reported {
                tracing::warn!(lines = lost - reported, "log lines were lost");
                reported = lost;
            }
        }
    }

    fn next_line(&self) -> Box<[u8]> {
        let mut waiting = self.0.waiting.lock();
        loop {
            if let Some(line) = waiting.lines.pop_front() {
                waiting.bytes -= line.len();
                waiting.is_writing = true;
                return line;
            }
            self.0.queued.wait(&mut waiting);
        }
    }

    /// Returns whether no line is left.
    fn line_done(&self) -> bool {
        let mut waiting = self.0.waiting.lock();
        waiting.is_writing = false;
        if waiting.is_empty() {
            self.0.emptied.notify_all();
        }
        waiting.is_empty()
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.lines.is_empty() && !self.is_writing
    }
}

/// The subscriber formats a line and writes it in one call.
impl Write for LogQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    /// Does nothing: see [`LogQueue::flush`] for the end of the process.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A reader that takes each line only when the test says so, and fails the write if told to.
    struct SlowReader {
        results: Receiver<io::Result<()>>,
        written: Sender<Vec<u8>>,
    }

    impl Write for SlowReader {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // The test has ended when the sender is gone.
            self.results.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
            // Fails only after the end of the test.
            let _ = self.written.send(line.to_vec());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow_reader(queue: &LogQueue) -> (Sender<io::Result<()>>, Receiver<Vec<u8>>) {
        let ((allow, results), (written, lines)) = (channel(), channel());
        queue.start_writing(SlowReader { results, written }).expect("a thread");
        (allow, lines)
    }

    #[test]
    fn a_reader_that_does_not_read_loses_lines_and_delays_nobody() {
        let queue = LogQueue::default();
        let (allow, lines) = slow_reader(&queue);
        let long = [b'x'; MAX_QUEUED_BYTES / 4];
        // At most one line is with the writing thread, and four are queued.
        (0..20).for_each(|_| queue.push(&long));
        assert!((15..=16).contains(&queue.lost()), "{}", queue.lost());
        (0..20).for_each(|_| allow.send(Ok(())).expect("the thread runs"));
        queue.flush(LONG);
        assert_eq!(lines.try_iter().count() as u64, 20 - queue.lost());
        queue.push(b"again\n");
        queue.flush(LONG);
        assert_eq!(lines.try_iter().last().as_deref(), Some(&b"again\n"[..]));
    }

    #[test]
    fn a_write_that_fails_loses_its_line_only() {
        let queue = LogQueue::default();
        let (allow, lines) = slow_reader(&queue);
        allow.send(Err(io::ErrorKind::StorageFull.into())).expect("the thread runs");
        allow.send(Ok(())).expect("the thread runs");
        queue.push(b"first\n");
        queue.push(b"second\n");
        queue.flush(LONG);
        assert_eq!((queue.lost(), lines.try_iter().collect::<Vec<_>>()), (1, vec![b"second\n".to_vec()]));
    }

    #[test]
    fn a_line_longer_than_the_queue_is_taken_alone() {
        let queue = LogQueue::default();
        queue.push(&vec![b'x'; MAX_QUEUED_BYTES + 1]);
        assert_eq!(queue.lost(), 0);
        queue.push(b"one more\n");
        assert_eq!(queue.lost(), 1);
    }

    #[test]
    fn a_flush_does_not_wait_longer_than_told() {
        let queue = LogQueue::default();
        let (_allow, lines) = slow_reader(&queue);
        queue.push(b"never read\n");
        queue.flush(Duration::from_millis(1));
        assert_eq!(lines.try_iter().count(), 0);
    }
}
