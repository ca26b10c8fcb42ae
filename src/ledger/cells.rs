//! What each worker has booked since the writer last took it. A worker books under its own lock, which it shares with
//! the writer alone. Its memory is bounded: what does not fit is booked without its key.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;

use base::clock::{Clock, SystemClock};
use engine::{Booking, BookingMode, ChargedLimit, Decision, Limit, Plan};
use hashbrown::{Equivalent, HashMap};
use parking_lot::Mutex;

use super::QUARTER_S;

/// Cells of a table that is handed to the writer.
const MAX_CELLS: usize = 16_384;
/// Tables of a worker that wait for the writer.
const MAX_WAITING: usize = 2;

/// A limit with `ledger`, by the labels of its metrics.
#[derive(Debug, PartialEq, Eq)]
pub struct BookedLimit {
    pub domain: Arc<str>,
    pub rule: Arc<str>,
}

/// What all workers have booked, and how far the writer is.
#[derive(Debug)]
pub struct Ledger {
    workers: Mutex<Vec<Arc<WorkerCells>>>,
    clock: Arc<dyn Clock>,
    pub(super) writer: Arc<OnceLock<Thread>>,
    pub(super) must_stop: AtomicBool,
    pub(super) progress: Progress,
}

/// Published by the writer.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) difference: AtomicU64,
    pub(super) lines: AtomicU64,
    pub(super) unattributed_units: AtomicU64,
    /// Everything that was booked before is written; microseconds since the epoch.
    pub(super) written_until_us: AtomicU64,
}

/// For metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerStats {
    /// Units that were booked and neither are written nor wait, or the reverse: always 0.
    pub difference: u64,
    pub lines: u64,
    pub unattributed_units: u64,
    pub oldest_unwritten_s: u64,
}

/// The ledger of one worker. Clones share it. The default books nothing.
#[derive(Clone, Debug, Default)]
pub struct WorkerLedger(Option<Arc<WorkerCells>>);

struct WorkerCells {
    tables: Mutex<WorkerTables>,
    clock: Arc<dyn Clock>,
    writer: Arc<OnceLock<Thread>>,
}

impl fmt::Debug for WorkerCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerCells").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct WorkerTables {
    filling: CellTable,
    waiting: Vec<CellTable>,
}

#[derive(Default)]
pub(super) struct CellTable {
    cells: HashMap<CellKey, Cell>,
    unattributed: HashMap<Place, Cell>,
    /// The total of all bookings, which the writer compares with the cells.
    pub(super) booked: u64,
}

/// The cells of a limit in a quarter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Place {
    /// Address of the [`BookedLimit`], which each cell keeps alive.
    limit: usize,
    /// Start of the quarter, seconds since the epoch.
    at_s: u64,
    mode: BookingMode,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CellKey {
    place: Place,
    key: Box<str>,
}

#[derive(Hash)]
struct CellRef<'k> {
    place: Place,
    key: &'k str,
}

impl Equivalent<CellKey> for CellRef<'_> {
    fn equivalent(&self, cell: &CellKey) -> bool {
        self.place == cell.place && *self.key == *cell.key
    }
}

/// What was booked on a counter in a quarter.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) limit: Arc<BookedLimit>,
    pub(super) sums: Booking,
    /// Time of the last decision in microseconds since the epoch, and the limit's number then.
    pub(super) of: (u64, u64),
}

impl Cell {
    pub(super) fn add(&mut self, sums: Booking, of: (u64, u64)) {
        self.sums += sums;
        self.of = self.of.max(of);
    }
}

/// A booking on its way to a cell.
pub(super) struct Booked<'b> {
    pub(super) limit: &'b Arc<BookedLimit>,
    pub(super) key: &'b str,
    pub(super) mode: BookingMode,
    pub(super) sums: Booking,
    /// The limit's number.
    pub(super) number: u64,
}

impl<'b> Booked<'b> {
    fn new(booked: &'b Arc<BookedLimit>, key: &'b str, limit: &Limit, sums: Booking) -> Self {
        let (mode, number) = (BookingMode::of(limit), limit.spec.requests_per_unit);
        Self { limit: booked, key, mode, sums, number }
    }
}

/// A cell as the writer gets it.
pub(super) struct TakenCell {
    pub(super) at_s: u64,
    pub(super) mode: BookingMode,
    /// `None` for units without a key.
    pub(super) key: Option<Box<str>>,
    pub(super) cell: Cell,
}

impl CellTable {
    fn book(&mut self, booked: &Booked<'_>, at_us: u64) {
        let Booked { limit, key, mode, sums, number } = *booked;
        let (second, of) = (at_us / 1_000_000, (at_us, number));
        let place = Place { limit: Arc::as_ptr(limit).addr(), at_s: second - second % QUARTER_S, mode };
        let cell = || Cell { limit: Arc::clone(limit), sums, of };
        self.booked = self.booked.wrapping_add(sums.total());
        if let Some(known) = self.cells.get_mut(&CellRef { place, key }) {
            known.add(sums, of);
        } else if self.cells.len() < MAX_CELLS {
            self.cells.insert(CellKey { place, key: key.into() }, cell());
        } else if let Some(known) = self.unattributed.get_mut(&place) {
            known.add(sums, of);
        } else {
            self.unattributed.insert(place, cell());
        }
    }

    pub(super) fn into_cells(self) -> impl Iterator<Item = TakenCell> {
        let taken = |Place { at_s, mode, .. }: Place, key, cell| TakenCell { at_s, mode, key, cell };
        let keyed =
            self.cells.into_iter().map(move |(known, cell)| taken(known.place, Some(known.key), cell));
        keyed.chain(self.unattributed.into_iter().map(move |(place, cell)| taken(place, None, cell)))
    }
}

impl WorkerLedger {
    /// Books a charge of a decision.
    pub fn book(&self, limit: &Arc<BookedLimit>, decision: &Decision, charged: &ChargedLimit<'_>) {
        let Some(worker) = &self.0 else { return };
        let (sums, at_us) = decision.booking(charged);
        let (key, _) = decision.charged_counter(charged.index);
        worker.book(&Booked::new(limit, key, charged.limit, sums), at_us);
    }

    /// Books a charge of a request that failed.
    pub fn book_failure(&self, limit: &Arc<BookedLimit>, plan: &Plan, charged: &ChargedLimit<'_>) {
        let Some(worker) = &self.0 else { return };
        let (key, charge) = plan.charges.get(charged.index);
        worker.book(&Booked::new(limit, key, charged.limit, Booking::of_failure(charge)), None);
    }
}

impl WorkerCells {
    /// Books at the store's time, or if it did not answer, at that of the process.
    fn book(&self, booked: &Booked<'_>, at_us: Option<u64>) {
        if booked.sums == Booking::default() {
            return;
        }
        let at_us = at_us.unwrap_or_else(|| self.clock.now_us());
        let mut tables = self.tables.lock();
        let WorkerTables { filling, waiting } = &mut *tables;
        filling.book(booked, at_us);
        if filling.cells.len() >= MAX_CELLS && waiting.len() < MAX_WAITING {
            waiting.push(mem::take(filling));
            drop(tables);
            if let Some(writer) = self.writer.get() {
                writer.unpark();
            }
        }
    }
}

#[cfg(test)]
impl WorkerLedger {
    pub(super) fn book_sums(&self, booked: &Booked<'_>, at_us: u64) {
        self.0.as_ref().expect("a worker").book(booked, Some(at_us));
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

impl Ledger {
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let progress = Progress { written_until_us: clock.now_us().into(), ..Progress::default() };
        let (workers, writer) = (Mutex::default(), Arc::default());
        Self { workers, clock, writer, must_stop: AtomicBool::default(), progress }
    }

    /// Returns the ledger of one worker.
    #[must_use]
    pub fn worker(&self) -> WorkerLedger {
        let (tables, clock, writer) = (Mutex::default(), Arc::clone(&self.clock), Arc::clone(&self.writer));
        let worker = Arc::new(WorkerCells { tables, clock, writer });
        self.workers.lock().push(Arc::clone(&worker));
        WorkerLedger(Some(worker))
    }

    #[must_use]
    pub fn stats(&self) -> LedgerStats {
        let Progress { difference, lines, unattributed_units, written_until_us } = &self.progress;
        let unwritten_us = self.clock.now_us().saturating_sub(written_until_us.load(Ordering::Relaxed));
        LedgerStats {
            difference: difference.load(Ordering::Relaxed),
            lines: lines.load(Ordering::Relaxed),
            unattributed_units: unattributed_units.load(Ordering::Relaxed),
            oldest_unwritten_s: unwritten_us / 1_000_000,
        }
    }

    pub(super) fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// Takes what the workers have booked, and forgets workers that have ended.
    pub(super) fn take(&self) -> Vec<CellTable> {
        let mut workers = self.workers.lock();
        let mut taken = Vec::new();
        workers.retain(|worker| {
            // Read first: a worker books nothing after it has ended.
            let lives = Arc::strong_count(worker) > 1;
            let WorkerTables { filling, waiting } = mem::take(&mut *worker.tables.lock());
            taken.extend(waiting);
            taken.push(filling);
            lives
        });
        taken
    }
}
