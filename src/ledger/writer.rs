//! The thread that writes the ledger. At each interval it merges the workers' bookings, and writes a line per key. What
//! cannot be written stays in memory, and is merged with what comes later.
//!
//! A numbered line keeps its number and its text until it is written, so a reader recognizes a second copy.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, Thread};
use std::time::Duration;

use base::log_throttle::LogThrottle;
use engine::BookingMode;
use rustix::system::uname;

use super::cells::{Cell, CellKey, Ledger};
use super::files::LedgerFiles;
use super::line::{Begin, Line, entries_of};
use super::{LedgerOptions, LedgerOutput};

const MAX_HOST_BYTES: usize = 63;
/// The process waits this long for the last lines, so that a hanging file system does not keep it alive.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Writes a line for [`LedgerOutput::Log`].
type LogLine = Box<dyn Fn(&[u8]) + Send>;

/// Ends when dropped, after its last line.
#[derive(Debug)]
pub struct LedgerThread {
    must_stop: Arc<AtomicBool>,
    thread: Thread,
    /// Fails as soon as the thread is gone.
    ended: Receiver<Infallible>,
}

impl LedgerThread {
    /// # Errors
    /// If the system cannot create the thread.
    pub fn start(
        ledger: Arc<Ledger>,
        options: LedgerOptions,
        log: impl Fn(&[u8]) + Send + 'static,
    ) -> io::Result<Self> {
        let must_stop = Arc::<AtomicBool>::default();
        let stop = Arc::clone(&must_stop);
        let (ends, ended) = mpsc::channel();
        let mut writer = LedgerWriter::new(ledger, options, Box::new(log));
        let thread = thread::Builder::new().name("ledger".to_owned()).spawn(move || {
            while !stop.load(Ordering::Acquire) {
                writer.write(false);
                thread::park_timeout(writer.options.interval);
            }
            writer.write(true);
            drop(ends);
        })?;
        Ok(Self { must_stop, thread: thread.thread().clone(), ended })
    }
}

impl Drop for LedgerThread {
    fn drop(&mut self) {
        self.must_stop.store(true, Ordering::Release);
        self.thread.unpark();
        if let Err(RecvTimeoutError::Timeout) = self.ended.recv_timeout(END_WITHIN) {
            tracing::error!(within = ?END_WITHIN, "the disk of the usage ledger hangs: its last lines are lost");
        }
    }
}

/// Identifies sums that wait. Ordered so that a limit's sums without a key are together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SumKey {
    domain: Arc<str>,
    rule: Arc<str>,
    mode: BookingMode,
    /// Empty for units without a key.
    key: Box<str>,
    at_s: u64,
}

/// Numbered lines that wait for the disk.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    lines: u64,
    /// Of the bookings in these lines.
    total: u64,
    unattributed_units: u64,
    /// `true` if it contains a file's first line.
    has_begin: bool,
}

pub(super) struct LedgerWriter {
    ledger: Arc<Ledger>,
    options: LedgerOptions,
    pub(super) process: String,
    log: LogLine,
    /// `None` for the log's output.
    files: Option<LedgerFiles>,
    next_seq: u64,
    waiting: BTreeMap<SumKey, Cell>,
    batch: Batch,
    /// Totals of all that was booked, and of all that was written. They wrap around.
    booked: u64,
    written: u64,
    /// `true` from a failure on, until it is over.
    is_failing: bool,
    unremoved: LogThrottle,
}

impl LedgerWriter {
    pub(super) fn new(ledger: Arc<Ledger>, options: LedgerOptions, log: LogLine) -> Self {
        let process = process_name(ledger.clock.now_us());
        let files = match &options.output {
            LedgerOutput::Log => None,
            LedgerOutput::Directory(path) => Some(LedgerFiles::new(path.clone(), process.clone())),
        };
        let (waiting, batch, unremoved) = Default::default();
        let (next_seq, booked, written, is_failing) = (0, 0, 0, false);
        Self {
            ledger,
            options,
            process,
            log,
            files,
            next_seq,
            waiting,
            batch,
            booked,
            written,
            is_failing,
            unremoved,
        }
    }

    /// Writes what was booked until now. `is_last`: `true` when the process ends.
    pub(super) fn write(&mut self, is_last: bool) {
        let now_us = self.ledger.clock.now_us();
        for table in self.ledger.take() {
            self.booked = self.booked.wrapping_add(table.booked);
            table.cells.into_iter().for_each(|(key, cell)| self.merge(key, cell));
        }
        let result = self.write_waiting(now_us, is_last);
        self.publish(result.is_ok().then_some(now_us));
        match result {
            Ok(()) if mem::take(&mut self.is_failing) => tracing::info!("the usage ledger is written again"),
            Ok(()) => {}
            Err(error) if is_last => tracing::error!(%error, "the usage ledger ends with unwritten sums"),
            Err(error) if !mem::replace(&mut self.is_failing, true) => {
                tracing::error!(%error, "cannot write the usage ledger; its sums are kept in memory");
            }
            Err(_) => {}
        }
        if !is_last {
            self.tidy(now_us);
        }
    }

    /// Adds a cell to what waits: without its key if there are too many keys, and after twice as many sums, to an
    /// earlier quarter of its limit.
    fn merge(&mut self, CellKey { at_s, mode, key, .. }: CellKey<Box<str>>, cell: Cell) {
        let (domain, rule) = (Arc::clone(&cell.limit.domain), Arc::clone(&cell.limit.rule));
        let mut place = SumKey { domain, rule, mode, key, at_s };
        let max_keys = self.options.max_keys;
        if self.waiting.len() >= max_keys && !self.waiting.contains_key(&place) {
            place.key = "".into();
            let before = self.waiting.range(..place.clone()).next_back();
            if self.waiting.len() >= 2 * max_keys
                && let Some((earlier, _)) = before
                && *earlier == (SumKey { at_s: earlier.at_s, ..place.clone() })
            {
                place.at_s = earlier.at_s;
            }
        }
        let (sums, of) = (cell.sums, cell.of);
        self.waiting.entry(place).and_modify(|known| known.add(sums, of)).or_insert(cell);
    }

    fn write_waiting(&mut self, now_us: u64, is_last: bool) -> io::Result<()> {
        self.write_batch(now_us)?;
        for (SumKey { domain, rule, mode, key, at_s }, cell) in mem::take(&mut self.waiting) {
            let unattributed = key.is_empty();
            let entries = if unattributed { Vec::new() } else { entries_of(&key) };
            let of = if unattributed { 0 } else { cell.of.1 };
            let (domain, rule) = (domain.to_string().into(), rule.to_string().into());
            let line = Line { at: at_s, domain, rule, entries, unattributed, of, ..self.line() };
            self.add_line(&line.with_sums(cell.sums, mode));
        }
        for line in self.ledger.take_lines() {
            let Line { process, seq, .. } = self.line();
            self.add_line(&Line { process, seq, ..line });
        }
        if is_last {
            let end = Line { end: true, ..self.line() };
            self.add_line(&end);
        }
        self.write_batch(now_us)
    }

    /// Returns a line with the next number.
    fn line(&mut self) -> Line<'static> {
        let seq = self.next_seq;
        self.next_seq += 1;
        Line { process: self.process.clone().into(), seq, ..Line::default() }
    }

    fn add_line(&mut self, line: &Line<'_>) {
        line.append_to(&mut self.batch.bytes);
        self.batch.lines += 1;
        self.batch.total = self.batch.total.wrapping_add(line.sums().total());
        if line.unattributed {
            self.batch.unattributed_units += line.units;
        }
    }

    /// Writes the batch, after the first line of its file.
    fn write_batch(&mut self, now_us: u64) -> io::Result<()> {
        let is_first = self.next_seq == 0;
        let is_new = self.files.as_mut().map_or(is_first, |files| files.needs_new(now_us));
        if is_new && !mem::replace(&mut self.batch.has_begin, true) {
            let lines = mem::take(&mut self.batch.bytes);
            let (version, interval_s) = (env!("CARGO_PKG_VERSION").into(), self.options.interval.as_secs());
            let begin = Line { begin: Some(Begin { version, interval_s }), ..self.line() };
            self.add_line(&begin);
            self.batch.bytes.extend(lines);
        }
        let bytes = &self.batch.bytes;
        match &mut self.files {
            Some(files) if bytes.is_empty() => files.touch(now_us)?,
            Some(files) => files.write(bytes, now_us)?,
            None => bytes.split_inclusive(|byte| *byte == b'\n').for_each(&self.log),
        }
        let Batch { lines, total, unattributed_units, .. } = mem::take(&mut self.batch);
        self.written = self.written.wrapping_add(total);
        let mut stats = self.ledger.stats.lock();
        stats.lines += lines;
        stats.unattributed_units += unattributed_units;
        Ok(())
    }

    /// `written_us`: everything that was booked before is written.
    fn publish(&self, written_us: Option<u64>) {
        let waiting = self.waiting.values().map(|cell| cell.sums.total());
        let accounted = waiting.fold(self.written.wrapping_add(self.batch.total), u64::wrapping_add);
        let mut stats = self.ledger.stats.lock();
        stats.difference = self.booked.wrapping_sub(accounted).cast_signed().unsigned_abs();
        stats.written_until_us = written_us.unwrap_or(stats.written_until_us);
    }

    /// Compresses a finished file, and removes old ones.
    fn tidy(&mut self, now_us: u64) {
        let Some(files) = &mut self.files else { return };
        let keep_us = self.options.keep.map(|keep| u64::try_from(keep.as_micros()).unwrap_or(u64::MAX));
        let oldest_us = now_us.saturating_sub(keep_us.unwrap_or(u64::MAX));
        // Old files go even if the disk is full, so that nothing can be compressed.
        let compressed = files.compress();
        let removed = files.remove_old(oldest_us, self.options.max_bytes);
        for file in removed.iter().flatten() {
            let file = file.display();
            tracing::warn!(%file, "the usage ledger is larger than ledger.max_bytes; removed its oldest file");
        }
        if let Some(error) = compressed.err().or(removed.err())
            && self.unremoved.count().is_some()
        {
            tracing::warn!(%error, "cannot compress or remove files of the usage ledger");
        }
    }
}

/// The host, in file-name characters, and the process's start in hexadecimal digits.
fn process_name(start_us: u64) -> String {
    let host = uname().nodename().to_string_lossy().into_owned();
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-_".contains(*letter);
    let host: String = host.chars().filter(is_plain).take(MAX_HOST_BYTES).collect();
    format!("{host}.{start_us:x}")
}
