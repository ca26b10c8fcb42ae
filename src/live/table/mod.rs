//! The live rows of this process: of each id the newest version, row or removal. Pure: the time is an argument.
//!
//! The sum of all versions shows whether two tables are equal. Rows are applied in any order; the newest version wins.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use engine::{ExceptionRow, LiveRows, RowTerms};
use rules::LiveRow;
use store::redis::{PutKind, PutResult, RowPut, RowTotals, StoredRow, decide_puts};

/// Sums are taken modulo this: Redis computes with doubles.
const SUM_MODULUS: u64 = 1 << 52;
/// Microseconds for which removals, and rows that are over, are kept: if an instance was cut off for longer, it adopts
/// the rows in Redis.
pub(super) const KEPT_US: u64 = 7 * 86_400 * 1_000_000;
/// If there are more automatic rows, the ones that are over free their space.
const MANY_AUTOMATIC: usize = 15_000;
/// Added before a row is forgotten, so that clocks that differ agree.
const CLOCK_RESERVE_US: u64 = 60 * 1_000_000;
/// Terms that are kept although no row uses them.
const FEW_TERMS: usize = 1_000;
/// Rows forgotten at once.
const MOST_DROPS: usize = 100;

#[derive(Debug, Default)]
pub(super) struct LiveTable {
    rows: BTreeMap<Arc<str>, TableRow>,
    sum: u64,
    newest: u64,
    /// The rows, without the ones that were over at `swept_us`.
    live: LiveRows,
    /// When they were last swept, microseconds since the epoch.
    swept_us: u64,
    /// Rows that are not removed, and the automatic ones of these.
    present: usize,
    automatic: usize,
    /// Shared by rows. When there are more than `most_terms`, unused ones go.
    terms: HashSet<Arc<RowTerms>>,
    most_terms: usize,
}

/// Small: a process keeps a hundred thousand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TableRow {
    Row(LiveRow),
    /// Removed, or written by another release and kept as it is.
    Other(Box<StoredRow>),
}

/// What a row changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// The table stores this version or a newer one.
    Known,
    Added,
    Changed,
    Removed,
    /// It cannot be read: nothing else changes.
    Unread,
}

impl TableRow {
    pub(super) fn row(&self) -> Option<&LiveRow> {
        if let Self::Row(row) = self { Some(row) } else { None }
    }

    pub(super) fn version(&self) -> u64 {
        match self {
            Self::Row(row) => row.version(),
            Self::Other(other) => other.version,
        }
    }

    fn until_us(&self) -> Option<u64> {
        match self {
            Self::Row(row) => row.row.until_us,
            Self::Other(other) => other.until_us,
        }
    }

    fn is_automatic(&self) -> bool {
        match self {
            Self::Row(row) => row.origin.is_automatic(),
            Self::Other(other) => other.is_automatic,
        }
    }

    fn stored(&self) -> StoredRow {
        match self {
            Self::Row(row) => StoredRow {
                id: row.id().to_string(),
                version: self.version(),
                until_us: self.until_us(),
                level: row.level,
                is_automatic: self.is_automatic(),
                json: Some(row.stored()),
            },
            Self::Other(other) => (**other).clone(),
        }
    }

    fn is_present(&self) -> bool {
        match self {
            Self::Row(_) => true,
            Self::Other(other) => other.json.is_some(),
        }
    }

    /// A put that restores the row, or its removal.
    fn restored(&self) -> RowPut {
        let StoredRow { id, version, until_us, level, is_automatic, json } = self.stored();
        RowPut { id, kind: PutKind::Restore { version, level }, until_us, is_automatic, json }
    }

    fn dropped(&self, id: &str) -> RowPut {
        RowPut {
            id: id.to_owned(),
            kind: PutKind::Drop { version: self.version() },
            until_us: self.until_us(),
            is_automatic: self.is_automatic(),
            json: None,
        }
    }

    /// When the row ended, or was removed.
    fn over_since(&self, now_us: u64) -> Option<u64> {
        if self.is_present() {
            self.until_us().filter(|until_us| *until_us <= now_us)
        } else {
            Some(self.version())
        }
    }
}

impl LiveTable {
    /// The rows for requests. They lack rows that were over at the last [`sweep`](Self::sweep).
    pub(super) fn live(&self) -> &LiveRows {
        &self.live
    }

    pub(super) fn sum(&self) -> u64 {
        self.sum
    }

    /// The greatest version so far.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    pub(super) fn get(&self, id: &str) -> Option<&TableRow> {
        self.rows.get(id)
    }

    /// Rows that are not removed, by id.
    pub(super) fn rows(&self) -> impl Iterator<Item = &LiveRow> {
        self.rows.values().filter_map(TableRow::row)
    }

    /// The same after the row with this id: first the rows that operators set, then the automatic ones.
    pub(super) fn rows_after<'t>(&'t self, after: &'t str) -> impl Iterator<Item = &'t LiveRow> {
        let is_automatic = self.rows.get(after).is_some_and(TableRow::is_automatic);
        [false, true].into_iter().skip(usize::from(is_automatic)).flat_map(move |automatic| {
            let after = if automatic == is_automatic { after } else { "" };
            let rows = self.rows.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
            rows.filter_map(|(_, row)| row.row()).filter(move |row| row.origin.is_automatic() == automatic)
        })
    }

    /// Writes all rows, or none if one is refused, as Redis does.
    pub(super) fn put_all(&mut self, puts: &[RowPut], now_us: u64) -> Vec<PutResult> {
        let Self { newest, present, automatic, .. } = *self;
        let totals = RowTotals { newest, stored: self.rows.len(), present, automatic };
        let results = decide_puts(puts, totals, now_us, |id| Some(self.rows.get(id)?.stored()));
        for (put, result) in puts.iter().zip(&results) {
            let PutResult::Written { version, until_us, level } = *result else { continue };
            match put.kind {
                PutKind::Drop { .. } => self.forget(&put.id),
                _ => {
                    let RowPut { id, is_automatic, json, .. } = put.clone();
                    self.apply(StoredRow { id, version, until_us, level, is_automatic, json });
                }
            }
        }
        results
    }

    pub(super) fn apply(&mut self, stored: StoredRow) -> Applied {
        let before = self.rows.get(stored.id.as_str());
        if before.is_some_and(|before| before.version() >= stored.version) {
            return Applied::Known;
        }
        let was_row = before.is_some_and(|before| before.row().is_some());
        self.forget(&stored.id);
        let (id, row) = self.read(stored);
        let applied = match (was_row, &row) {
            (false, TableRow::Row(_)) => Applied::Added,
            (true, TableRow::Row(_)) => Applied::Changed,
            (_, TableRow::Other(other)) if other.json.is_some() => Applied::Unread,
            (false, TableRow::Other(_)) => Applied::Known,
            (true, TableRow::Other(_)) => Applied::Removed,
        };
        if let Some(row) = row.row() {
            self.live.insert(Arc::clone(&row.row));
        }
        self.newest = self.newest.max(row.version());
        self.sum = (self.sum + row.version()) % SUM_MODULUS;
        self.present += usize::from(row.is_present());
        self.automatic += usize::from(row.is_present() && row.is_automatic());
        self.rows.insert(id, row);
        applied
    }

    /// The id is that of the row, which is not copied.
    fn read(&mut self, stored: StoredRow) -> (Arc<str>, TableRow) {
        let StoredRow { id, version, until_us, level, is_automatic, json } = &stored;
        let row = json.as_ref().and_then(|json| LiveRow::from_stored(json, *version, *until_us).ok());
        match row {
            Some(mut row) if **row.id() == **id && row.origin.is_automatic() == *is_automatic => {
                row.level = *level;
                self.share_terms(Arc::make_mut(&mut row.row));
                (Arc::clone(row.id()), TableRow::Row(row))
            }
            _ => (id.as_str().into(), TableRow::Other(stored.into())),
        }
    }

    fn share_terms(&mut self, row: &mut ExceptionRow) {
        if let Some(shared) = self.terms.get(&row.terms) {
            row.terms = Arc::clone(shared);
            return;
        }
        if self.terms.len() >= self.most_terms {
            self.terms.retain(|terms| Arc::strong_count(terms) > 1);
            self.most_terms = 2 * self.terms.len() + FEW_TERMS;
        }
        self.terms.insert(Arc::clone(&row.terms));
    }

    /// Forgets a row, and that it was removed.
    pub(super) fn forget(&mut self, id: &str) {
        let Some(row) = self.rows.remove(id) else { return };
        self.sum = (self.sum + SUM_MODULUS - row.version() % SUM_MODULUS) % SUM_MODULUS;
        self.present -= usize::from(row.is_present());
        self.automatic -= usize::from(row.is_present() && row.is_automatic());
        if let TableRow::Row(row) = row {
            self.live.remove(&row.row);
        }
    }

    /// Forgets a dropped row, unless it was written again since.
    pub(super) fn forget_dropped(&mut self, put: &RowPut) {
        let version = self.rows.get(put.id.as_str()).map(TableRow::version);
        if matches!(put.kind, PutKind::Drop { version: dropped } if version == Some(dropped)) {
            self.forget(&put.id);
        }
    }

    /// Drops rows that Redis does not store if they are over for as long as they are kept, or if `is_stale`. If a row
    /// ended just now, it stays, because another instance may store the row that it replaced. `stored`: the versions of
    /// all rows in Redis.
    pub(super) fn forget_missing(&mut self, stored: &HashMap<String, u64>, is_stale: bool, now_us: u64) {
        let is_over = |row: &TableRow| {
            let kept_us = if row.is_automatic() && row.is_present() { 0 } else { KEPT_US };
            row.over_since(now_us).is_some_and(|since_us| since_us.saturating_add(kept_us) <= now_us)
        };
        let missing =
            self.rows.iter().filter(|(id, row)| !stored.contains_key(&***id) && (is_stale || is_over(row)));
        let missing: Vec<_> = missing.map(|(id, _)| Arc::clone(id)).collect();
        missing.iter().for_each(|id| self.forget(id));
    }

    /// What Redis lost: every row or removal of which it stores an older version, or none.
    pub(super) fn lost(&self, stored: &HashMap<String, u64>) -> Vec<RowPut> {
        let lost = self.rows.iter().filter(|(id, row)| stored.get(&***id) != Some(&row.version()));
        lost.map(|(_, row)| row.restored()).collect()
    }

    /// `true` if the clock went back since the last sweep: rows that were over may apply again.
    pub(super) fn is_before_sweep(&self, now_us: u64) -> bool {
        now_us < self.swept_us
    }

    /// Removes rows that are over from the rows for requests. Returns what to drop now, the oldest first, and when the
    /// next row starts, ends or can be dropped.
    pub(super) fn sweep(&mut self, now_us: u64) -> (Vec<RowPut>, u64) {
        if self.is_before_sweep(now_us) {
            self.live = LiveRows::default();
            self.rows
                .values()
                .filter_map(TableRow::row)
                .for_each(|row| self.live.insert(Arc::clone(&row.row)));
        }
        self.swept_us = now_us;
        let is_crowded = self.automatic > MANY_AUTOMATIC;
        let (mut over, mut due_us) = (Vec::new(), u64::MAX);
        for (id, row) in &self.rows {
            let Some(since_us) = row.over_since(now_us) else {
                let from_us = row.row().and_then(|row| row.row.from_us).filter(|from_us| *from_us > now_us);
                due_us = [from_us, row.until_us()].into_iter().flatten().fold(due_us, u64::min);
                continue;
            };
            if let Some(row) = row.row() {
                self.live.remove(&row.row);
            }
            let can_go = is_crowded && row.is_automatic() && row.is_present();
            let kept_us = if can_go { 0 } else { KEPT_US };
            let drop_us = since_us.saturating_add(kept_us + CLOCK_RESERVE_US);
            due_us = due_us.min(drop_us);
            if drop_us <= now_us {
                over.push((since_us, id, row));
            }
        }
        over.sort_unstable_by_key(|(since_us, ..)| *since_us);
        let drops = over.into_iter().take(MOST_DROPS).map(|(_, id, row)| row.dropped(id));
        (drops.collect(), due_us)
    }
}
