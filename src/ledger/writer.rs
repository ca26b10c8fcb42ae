//! The thread that writes the ledger. At each interval it takes what the workers have booked, merges it, and writes a
//! line for each key. What cannot be written stays in memory, and is merged with what comes later.
//!
//! A line that has a number keeps it and its text until it is written, so whoever reads it twice knows it.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use engine::BookingMode;
use rustix::system::uname;

use super::cells::{Cell, Ledger, TakenCell};
use super::files::LedgerFiles;
use super::line::{Begin, Line, entries_of};
use super::{LedgerOptions, LedgerOutput};

/// Sums without a key that wait to be written; more are added to another quarter of their limit.
const MAX_UNATTRIBUTED: usize = 10_000;
const MAX_HOST_BYTES: usize = 63;

/// Ends when dropped, after its last line.
#[derive(Debug)]
pub struct LedgerThread {
    ledger: Arc<Ledger>,
    thread: Option<JoinHandle<()>>,
}

impl LedgerThread {
    /// `log`: takes a line for [`LedgerOutput::Log`].
    ///
    /// # Errors
    /// If the system cannot create the thread.
    pub fn start(
        ledger: Arc<Ledger>,
        options: LedgerOptions,
        log: impl Fn(&[u8]) + Send + 'static,
    ) -> io::Result<Self> {
        let mut writer = LedgerWriter::new(Arc::clone(&ledger), options, Box::new(log));
        let thread = thread::Builder::new().name("ledger".to_owned()).spawn(move || writer.run())?;
        ledger.writer.get_or_init(|| thread.thread().clone());
        Ok(Self { ledger, thread: Some(thread) })
    }
}

impl Drop for LedgerThread {
    fn drop(&mut self) {
        self.ledger.must_stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        if thread.join().is_err() {
            tracing::error!("the thread of the usage ledger panicked");
        }
    }
}

/// Identifies a sum that waits. Ordered so that the sums of a limit without a key are together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SumKey {
    domain: Arc<str>,
    rule: Arc<str>,
    mode: BookingMode,
    /// `None` for units without a key.
    key: Option<Box<str>>,
    at_s: u64,
}

/// Lines that have their numbers, and wait for the disk.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    lines: u64,
    /// Of the bookings in these lines.
    total: u64,
    unattributed_units: u64,
}

pub(super) struct LedgerWriter {
    ledger: Arc<Ledger>,
    options: LedgerOptions,
    process: String,
    log: Box<dyn Fn(&[u8]) + Send>,
    /// `None` for the log's output.
    files: Option<LedgerFiles>,
    next_seq: u64,
    /// The first line of the next file, once it has its number.
    begin: Option<Vec<u8>>,
    waiting: BTreeMap<SumKey, Cell>,
    /// Sums with and without a key that wait.
    keys: usize,
    unattributed: usize,
    batch: Batch,
    /// Totals of all that was booked, and of all that was written. They wrap around.
    booked: u64,
    written: u64,
    /// `true` from a failure on, until it is over.
    is_failing: bool,
    cannot_remove: bool,
}

impl LedgerWriter {
    pub(super) fn new(ledger: Arc<Ledger>, options: LedgerOptions, log: Box<dyn Fn(&[u8]) + Send>) -> Self {
        let process = process_name(ledger.now_us());
        let files = match &options.output {
            LedgerOutput::Log => None,
            LedgerOutput::Directory(path) => Some(LedgerFiles::new(path.clone(), process.clone())),
        };
        Self {
            ledger,
            options,
            process,
            log,
            files,
            next_seq: 0,
            begin: None,
            waiting: BTreeMap::new(),
            keys: 0,
            unattributed: 0,
            batch: Batch::default(),
            booked: 0,
            written: 0,
            is_failing: false,
            cannot_remove: false,
        }
    }

    #[cfg(test)]
    pub(super) fn process_name(&self) -> &str {
        &self.process
    }

    fn run(&mut self) {
        self.write(false);
        let interval_us = u64::try_from(self.options.interval.as_micros()).unwrap_or(u64::MAX);
        let mut written_us = self.ledger.now_us();
        loop {
            let passed_us = self.ledger.now_us().saturating_sub(written_us);
            if passed_us < interval_us {
                thread::park_timeout(Duration::from_micros(interval_us - passed_us));
            }
            // Workers book nothing after this.
            let must_stop = self.ledger.must_stop.load(Ordering::Acquire);
            let now_us = self.ledger.now_us();
            if must_stop || now_us < written_us || now_us - written_us >= interval_us {
                written_us = now_us;
                self.write(must_stop);
            } else {
                // A worker has handed over a full table.
                self.take();
                self.publish(None);
            }
            if must_stop {
                return;
            }
        }
    }

    /// Writes what was booked until now. `is_last`: `true` at the end of the process.
    pub(super) fn write(&mut self, is_last: bool) {
        let now_us = self.ledger.now_us();
        self.take();
        let result = self.write_waiting(now_us, is_last);
        match &result {
            Ok(()) if mem::take(&mut self.is_failing) => tracing::info!("the usage ledger is written again"),
            Ok(()) => {}
            Err(error) if is_last => tracing::error!(%error, "the usage ledger ends with unwritten sums"),
            Err(error) if !mem::replace(&mut self.is_failing, true) => {
                tracing::error!(%error, "cannot write the usage ledger; its sums are kept in memory");
            }
            Err(_) => {}
        }
        self.publish(result.is_ok().then_some(now_us));
        if !is_last {
            self.tidy(now_us);
        }
    }

    /// Takes what the workers have booked.
    fn take(&mut self) {
        for table in self.ledger.take() {
            self.booked = self.booked.wrapping_add(table.booked);
            for cell in table.into_cells() {
                self.add(cell);
            }
        }
    }

    fn add(&mut self, TakenCell { at_s, mode, key, cell }: TakenCell) {
        let (domain, rule) = (Arc::clone(&cell.limit.domain), Arc::clone(&cell.limit.rule));
        let mut place = SumKey { domain, rule, mode, key, at_s };
        let is_known = self.waiting.contains_key(&place);
        if place.key.is_some() && !is_known {
            if self.keys < self.options.max_keys {
                self.keys += 1;
            } else {
                place.key = None;
            }
        }
        if place.key.is_none() && !self.waiting.contains_key(&place) {
            if self.unattributed < MAX_UNATTRIBUTED {
                self.unattributed += 1;
            } else {
                let first = SumKey { at_s: 0, ..place.clone() };
                let latest =
                    self.waiting.range(first..SumKey { at_s: u64::MAX, ..place.clone() }).next_back();
                place.at_s = latest.map_or(at_s, |(latest, _)| latest.at_s);
            }
        }
        let (sums, of) = (cell.sums, cell.of);
        self.waiting.entry(place).and_modify(|known| known.add(sums, of)).or_insert(cell);
    }

    fn write_waiting(&mut self, now_us: u64, is_last: bool) -> io::Result<()> {
        self.write_batch(now_us)?;
        self.number_lines();
        if is_last {
            let end = Line { end: true, ..self.line() };
            self.add_line(&end);
        }
        self.write_batch(now_us)
    }

    /// Moves everything that waits to the batch.
    fn number_lines(&mut self) {
        (self.keys, self.unattributed) = (0, 0);
        for (SumKey { domain, rule, mode, key, at_s }, cell) in mem::take(&mut self.waiting) {
            let entries = key.as_deref().map(entries_of).unwrap_or_default();
            let (domain, rule) = ((*domain).into(), (*rule).into());
            let line = Line {
                at: at_s,
                domain,
                rule,
                entries,
                unattributed: key.is_none(),
                of: if key.is_some() { cell.of.1 } else { 0 },
                ..self.line()
            };
            self.add_line(&line.with_sums(cell.sums, mode));
        }
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

    /// Writes the batch, after the first line of a new file if there is none to continue.
    fn write_batch(&mut self, now_us: u64) -> io::Result<()> {
        let is_first = self.next_seq == 0;
        if self.files.as_mut().map_or(is_first, |files| files.needs_new(now_us)) {
            self.write_begin(now_us)?;
        }
        let batch = &self.batch;
        match &mut self.files {
            Some(files) if batch.bytes.is_empty() => files.touch(now_us)?,
            Some(files) => files.write(&batch.bytes, now_us)?,
            None => batch.bytes.split_inclusive(|byte| *byte == b'\n').for_each(&self.log),
        }
        let Batch { lines, total, unattributed_units, .. } = mem::take(&mut self.batch);
        self.written = self.written.wrapping_add(total);
        self.ledger.progress.lines.fetch_add(lines, Ordering::Relaxed);
        self.ledger.progress.unattributed_units.fetch_add(unattributed_units, Ordering::Relaxed);
        Ok(())
    }

    fn write_begin(&mut self, now_us: u64) -> io::Result<()> {
        let begin = match self.begin.take() {
            Some(begin) => begin,
            None => {
                let (version, interval_s) =
                    (env!("CARGO_PKG_VERSION").into(), self.options.interval.as_secs());
                let line = Line { begin: Some(Begin { version, interval_s }), ..self.line() };
                let mut text = Vec::new();
                line.append_to(&mut text);
                text
            }
        };
        let written = match &mut self.files {
            Some(files) => files.write(&begin, now_us),
            None => {
                (self.log)(&begin);
                Ok(())
            }
        };
        match written {
            Ok(()) => {
                self.ledger.progress.lines.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => self.begin = Some(begin),
        }
        written
    }

    /// `written_us`: everything that was booked before is written.
    fn publish(&self, written_us: Option<u64>) {
        let progress = &self.ledger.progress;
        let waiting = self.waiting.values().map(|cell| cell.sums.total());
        let accounted = waiting.fold(self.written.wrapping_add(self.batch.total), u64::wrapping_add);
        let difference = self.booked.wrapping_sub(accounted).cast_signed().unsigned_abs();
        progress.difference.store(difference, Ordering::Relaxed);
        if let Some(written_us) = written_us {
            progress.written_until_us.store(written_us, Ordering::Relaxed);
        }
    }

    /// Compresses a finished file, and removes old ones.
    fn tidy(&mut self, now_us: u64) {
        let Some(files) = &mut self.files else { return };
        if let Err(error) = files.compress() {
            tracing::warn!(%error, "cannot compress a file of the usage ledger");
        }
        let keep_us =
            self.options.keep.map_or(u64::MAX, |keep| u64::try_from(keep.as_micros()).unwrap_or(u64::MAX));
        match files.remove_old(now_us.saturating_sub(keep_us), self.options.max_bytes) {
            Ok(removed) => {
                self.cannot_remove = false;
                for file in removed {
                    let file = file.display();
                    tracing::warn!(%file, "the usage ledger is larger than ledger.max_bytes; removed its oldest file");
                }
            }
            Err(error) if !mem::replace(&mut self.cannot_remove, true) => {
                tracing::warn!(%error, "cannot remove old files of the usage ledger");
            }
            Err(_) => {}
        }
    }
}

/// The host and the start of the process, in characters of file names.
fn process_name(start_us: u64) -> String {
    let host = uname().nodename().to_string_lossy().into_owned();
    let host: String = host
        .chars()
        .filter(|&c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        .take(MAX_HOST_BYTES)
        .collect();
    format!("{host}.{}", base36(start_us))
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    while number > 0 || digits.is_empty() {
        // A remainder below 36.
        digits.push(b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize]);
        number /= 36;
    }
    digits.reverse();
    String::from_utf8_lossy(&digits).into_owned()
}
