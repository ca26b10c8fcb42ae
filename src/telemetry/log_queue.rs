//! The queue between the threads that log and the one thread that writes the log. A thread that logs never waits: its
//! line is queued, or lost and counted. So a slow or dead reader delays no decision, and a full disk stops nothing.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

/// About 4 MiB: far more than a burst at a level for operators.
const MAX_QUEUED_LINES: usize = 16_384;

/// Lines on their way to the log. Clones share the queue.
#[derive(Clone, Debug)]
pub struct LogQueue {
    pub(super) lines: NonBlocking,
    /// Lines whose write failed.
    unwritten: Arc<AtomicU64>,
    /// The writing thread ends with the guard.
    guard: Arc<Mutex<Option<WorkerGuard>>>,
}

impl LogQueue {
    /// Starts the thread that writes the lines to `output`.
    pub fn start(output: impl Write + Send + 'static) -> Self {
        let unwritten = Arc::<AtomicU64>::default();
        let output = CountedOutput { output, unwritten: Arc::clone(&unwritten) };
        let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(MAX_QUEUED_LINES);
        let (lines, guard) = builder.thread_name("log").finish(output);
        Self { lines, unwritten, guard: Arc::new(Mutex::new(Some(guard))) }
    }

    /// Queues a line, which ends with a newline. If the queue is full, the line is lost.
    pub fn push(&self, line: &[u8]) {
        self.lines.clone().write_all(line).expect("the queue takes a line, or counts it as lost");
    }

    /// Lines lost because the queue was full or the write failed.
    pub fn lost(&self) -> u64 {
        self.lines.error_counter().dropped_lines() as u64 + self.unwritten.load(Ordering::Relaxed)
    }

    /// Ends the log: waits until every queued line is written or lost, for at most `at_most`.
    pub fn flush(&self, at_most: Duration) {
        let guard = self.guard.lock().take();
        let (ends, ended) = mpsc::channel::<()>();
        // On its own thread, because the guard waits by itself, and prints to standard output if the log takes no line.
        let ending = thread::Builder::new().spawn(move || {
            drop(guard);
            drop(ends);
        });
        if ending.is_ok() {
            // The caller does not care whether time ran out.
            let _ = ended.recv_timeout(at_most);
        }
    }
}

/// Counts failed writes, which the writing thread does not report.
struct CountedOutput<W> {
    output: W,
    unwritten: Arc<AtomicU64>,
}

impl<W: Write> Write for CountedOutput<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.output.write(line)
    }

    fn write_all(&mut self, line: &[u8]) -> io::Result<()> {
        self.output.write_all(line).inspect_err(|_| {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Takes each line only when the test says so, and fails the write on request.
    struct SlowReader {
        results: Receiver<io::Result<()>>,
        written: Sender<Vec<u8>>,
    }

    impl Write for SlowReader {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            // The sender is gone once the test has ended.
            self.results.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
            // Fails only after the test has ended.
            let _ = self.written.send(line.to_vec());
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow_reader() -> (LogQueue, Sender<io::Result<()>>, Receiver<Vec<u8>>) {
        let ((allow, results), (written, lines)) = (channel(), channel());
        (LogQueue::start(SlowReader { results, written }), allow, lines)
    }

    #[test]
    fn a_reader_that_does_not_read_loses_lines_and_delays_nobody() {
        let (queue, allow, lines) = slow_reader();
        // At most one line is with the writing thread.
        let pushed = MAX_QUEUED_LINES + 20;
        (0..pushed).for_each(|_| queue.push(b"a line\n"));
        assert!((19..=20).contains(&queue.lost()), "{}", queue.lost());
        (0..pushed).for_each(|_| allow.send(Ok(())).expect("the thread runs"));
        queue.flush(LONG);
        assert_eq!(lines.iter().count() as u64, pushed as u64 - queue.lost());
    }

    #[test]
    fn a_write_that_fails_loses_its_line_only() {
        let (queue, allow, lines) = slow_reader();
        allow.send(Err(io::ErrorKind::StorageFull.into())).expect("the thread runs");
        allow.send(Ok(())).expect("the thread runs");
        queue.push(b"first\n");
        queue.push(b"second\n");
        queue.flush(LONG);
        assert_eq!(lines.iter().collect::<Vec<_>>(), [b"second\n"]);
        assert_eq!(queue.lost(), 1);
    }

    #[test]
    fn a_flush_does_not_wait_longer_than_told() {
        let (queue, _allow, lines) = slow_reader();
        queue.push(b"never read\n");
        queue.flush(Duration::from_millis(1));
        assert_eq!(lines.try_iter().count(), 0);
    }
}
