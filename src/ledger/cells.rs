//! What each worker booked since the writer's last visit. A worker books under its own lock, shared only with the
//! writer. Its memory is bounded: what does not fit is booked without its key.

use std::mem;
use std::ops::AddAssign;
use std::sync::Arc;

use base::clock::Clock;
use engine::{BookedCharge, Booking, BookingMode, ChargedLimit, Decision, Limit, Outcome, Plan};
use hashbrown::{Equivalent, HashMap};
use parking_lot::Mutex;

use super::QUARTER_S;
use super::line::Line;

/// A limit by its metric labels. The ledger books limits with `ledger`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LimitLabels {
    pub domain: Arc<str>,
    pub rule: Arc<str>,
}

/// The workers' bookings, and how far the writer is.
#[derive(Debug)]
pub struct Ledger {
    workers: Mutex<Vec<Arc<WorkerCells>>>,
    /// Lines without sums, which wait for the writer: at most `max_keys`.
    lines: Mutex<Vec<Line<'static>>>,
    max_keys: usize,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stats: Mutex<LedgerStats>,
}

/// For metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerStats {
    /// Requests and units that were booked and neither are written nor wait, or the reverse: always 0.
    pub difference: u64,
    pub lines: u64,
    pub unattributed_units: u64,
    /// Everything booked before this is written; microseconds since the epoch.
    pub written_until_us: u64,
}

/// The ledger of one worker. Clones share it. The default books nothing.
#[derive(Clone, Debug, Default)]
pub struct WorkerLedger(Option<Arc<WorkerCells>>);

#[derive(Debug)]
struct WorkerCells {
    table: Mutex<CellTable>,
    max_keys: usize,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
pub(super) struct CellTable {
    pub(super) cells: HashMap<CellKey<Box<str>>, Cell>,
    /// The total of all bookings, which the writer compares with the cells.
    pub(super) booked: u64,
}

/// A counter in a quarter of an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CellKey<K> {
    /// Address of the [`LimitLabels`], which the cell keeps alive.
    limit: usize,
    /// Start of the quarter, seconds since the epoch.
    pub(super) at_s: u64,
    pub(super) mode: BookingMode,
    /// The counter key; empty for the sum over keys without a cell.
    pub(super) key: K,
}

impl Equivalent<CellKey<Box<str>>> for CellKey<&str> {
    fn equivalent(&self, other: &CellKey<Box<str>>) -> bool {
        let CellKey { limit, at_s, mode, ref key } = *other;
        (self.limit, self.at_s, self.mode, self.key) == (limit, at_s, mode, &**key)
    }
}

#[derive(Debug)]
pub(super) struct Cell {
    pub(super) limit: Arc<LimitLabels>,
    pub(super) sums: Booking,
    /// Time of the last decision in microseconds since the epoch, and the limit's number then.
    pub(super) of: (u64, u64),
}

impl Cell {
    pub(super) fn add<B>(&mut self, booking: B, of: (u64, u64))
    where
        Booking: AddAssign<B>,
    {
        self.sums += booking;
        if of.0 >= self.of.0 {
            self.of = of;
        }
    }
}

/// A booking on its way to a cell.
pub(super) struct Booked<'b> {
    pub(super) limit: &'b Arc<LimitLabels>,
    pub(super) key: &'b str,
    pub(super) mode: BookingMode,
    pub(super) charge: BookedCharge,
    /// The limit's number; 0 if unlimited.
    pub(super) number: u64,
}

impl<'b> Booked<'b> {
    fn new(booked: &'b Arc<LimitLabels>, key: &'b str, limit: &Limit, charge: BookedCharge) -> Self {
        let number = if limit.spec.unlimited { 0 } else { limit.spec.requests_per_unit };
        let mode = BookingMode::of(limit);
        Self { limit: booked, key, mode, charge, number }
    }
}

impl CellTable {
    fn book(&mut self, booked: &Booked<'_>, at_us: u64, max_keys: usize) {
        let Booked { limit, key, mode, charge, number } = *booked;
        let at_s = at_us / (QUARTER_S * 1_000_000) * QUARTER_S;
        let place = CellKey { limit: Arc::as_ptr(limit).addr(), at_s, mode, key };
        let cell = match self.cells.get_mut(&place) {
            Some(cell) => cell,
            None => self.add_cell(place, limit, max_keys),
        };
        cell.add(charge, (at_us, number));
    }

    /// Returns a new cell, or if there are too many, the one without a key. Not inlined: most bookings have a cell.
    #[cold]
    fn add_cell(&mut self, place: CellKey<&str>, limit: &Arc<LimitLabels>, max_keys: usize) -> &mut Cell {
        let CellKey { limit: address, at_s, mode, key } = place;
        let key = if self.cells.len() < max_keys { key.into() } else { Box::default() };
        let place = CellKey { limit: address, at_s, mode, key };
        let (limit, sums, of) = (Arc::clone(limit), Booking::default(), (0, 0));
        self.cells.entry(place).or_insert(Cell { limit, sums, of })
    }
}

impl WorkerLedger {
    /// Books a charge of a decision, with its outcome.
    pub fn book(
        &self,
        limit: &Arc<LimitLabels>,
        decision: &Decision,
        (charged, outcome): (&ChargedLimit<'_>, &Outcome),
    ) {
        let (charge, at_us) = decision.booking(charged, outcome);
        let (key, _) = decision.charged_counter(charged.index);
        self.add(&Booked::new(limit, key, charged.limit, charge), at_us);
    }

    /// Books a charge of a request that failed.
    pub fn book_failure(&self, limit: &Arc<LimitLabels>, plan: &Plan, charged: &ChargedLimit<'_>) {
        let (key, charge) = plan.charges.get(charged.index);
        self.add(&Booked::new(limit, key, charged.limit, BookedCharge::of_failure(charge)), None);
    }

    /// Books at the store's time, or if it did not answer, at the process's.
    pub(super) fn add(&self, booked: &Booked<'_>, at_us: Option<u64>) {
        let total = booked.charge.total();
        let Some(worker) = self.0.as_ref().filter(|_| total > 0) else { return };
        let at_us = at_us.unwrap_or_else(|| worker.clock.now_us());
        let mut table = worker.table.lock();
        table.booked = table.booked.wrapping_add(total);
        table.book(booked, at_us, worker.max_keys);
    }
}

impl Ledger {
    /// `max_keys`: cells of each worker.
    pub fn new(clock: Arc<dyn Clock>, max_keys: usize) -> Self {
        let stats = LedgerStats { written_until_us: clock.now_us(), ..LedgerStats::default() };
        let (workers, lines) = Default::default();
        Self { workers, lines, max_keys, clock, stats: Mutex::new(stats) }
    }

    /// Returns the ledger of one worker.
    pub fn worker(&self) -> WorkerLedger {
        let (table, clock) = (Mutex::default(), Arc::clone(&self.clock));
        let worker = Arc::new(WorkerCells { table, max_keys: self.max_keys, clock });
        self.workers.lock().push(Arc::clone(&worker));
        WorkerLedger(Some(worker))
    }

    /// Adds a line without sums. Its process and number are set when it is written. If too many wait, it is lost.
    pub fn add_line(&self, line: Line<'static>) {
        let mut lines = self.lines.lock();
        if lines.len() < self.max_keys {
            lines.push(line);
        }
    }

    pub(super) fn take_lines(&self) -> Vec<Line<'static>> {
        mem::take(&mut self.lines.lock())
    }

    pub fn stats(&self) -> LedgerStats {
        *self.stats.lock()
    }

    /// Seconds since everything that was booked is written.
    pub fn oldest_unwritten_s(&self) -> u64 {
        self.clock.now_us().saturating_sub(self.stats().written_until_us) / 1_000_000
    }

    /// Empties the workers' tables, and removes workers that ended. A worker's next table is as large as the last one,
    /// so that it seldom grows while a decision waits.
    pub(super) fn take(&self) -> Vec<CellTable> {
        let mut workers = self.workers.lock();
        let mut taken = Vec::with_capacity(workers.len());
        workers.retain(|worker| {
            // Read first: a worker that ended books nothing more.
            let lives = Arc::strong_count(worker) > 1;
            let usual = worker.table.lock().cells.len();
            let next = CellTable { cells: HashMap::with_capacity(usual), booked: 0 };
            taken.push(mem::replace(&mut *worker.table.lock(), next));
            lives
        });
        taken
    }
}
