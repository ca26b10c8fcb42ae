//! Counts what a load changed, file by file, for the log, the admin page and the metrics.

use std::collections::HashMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::ops::Add;
use std::sync::Arc;

use engine::{Added, ExceptionKind, ExceptionRow, Exceptions, TierMark};

use super::LoadedExceptions;

/// Rows per kind. A row that changes several things counts for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCounts([u64; ExceptionKind::COUNT]);

/// The active rows of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileSummary {
    pub name: Arc<str>,
    pub rows: u64,
    pub kinds: KindCounts,
    /// Compared with the previous load.
    pub changes: RowChanges,
}

/// Differences from the previous load. A row of a YAML file is the same one if it applies to the same requests and
/// limits and has the same columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowChanges {
    pub added: u64,
    pub removed: u64,
    pub changed: u64,
}

impl KindCounts {
    pub fn iter(&self) -> impl Iterator<Item = (ExceptionKind, u64)> {
        ExceptionKind::all().zip(self.0)
    }

    /// Counts a row.
    pub fn add_row(&mut self, row: &ExceptionRow) {
        row.effect.kinds().for_each(|kind| self.add_rows(kind, 1));
    }

    fn add_rows(&mut self, kind: ExceptionKind, rows: u64) {
        if let Some(count) = ExceptionKind::all().position(|known| known == kind) {
            self.0[count] += rows;
        }
    }
}

impl Add for KindCounts {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(sum, rows)| *sum += rows);
        self
    }
}

impl RowChanges {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Equal for rows of one file that apply to the same requests and limits, and have the same columns.
pub(super) fn row_identity(row: &ExceptionRow) -> u64 {
    let kinds: Vec<_> = row.effect.kinds().map(|kind| kind.into_str()).collect();
    let mut hasher = DefaultHasher::new();
    let text = format!("{:?}", (&row.domain, &row.key, &row.value, &row.path, &row.limit_name, kinds));
    text.hash(&mut hasher);
    hasher.finish()
}

/// Counts the rows of each file while they are read.
pub(super) struct ChangeCounts<'p> {
    previous: &'p LoadedExceptions,
    /// The rows of YAML files that were active, by file and identity: several if each is for its own time.
    before: HashMap<(&'p str, u64), Vec<&'p ExceptionRow>>,
    files: Vec<FileSummary>,
}

/// Rows of CSV files with the same marks.
#[derive(Default)]
pub(super) struct AddedCounts {
    counts: HashMap<Added, u64>,
    /// Consecutive rows usually have the same marks.
    last: Option<(Added, u64)>,
}

/// The result, after all rows were read.
pub(super) struct Counted {
    pub files: Vec<FileSummary>,
    pub gone: Vec<FileSummary>,
    /// Per CSV file, the number of rows that repeat earlier ones.
    pub repeated: Vec<(Arc<str>, u64)>,
}

impl AddedCounts {
    pub fn count(&mut self, added: Added) {
        match &mut self.last {
            Some((last, rows)) if *last == added => *rows += 1,
            last => {
                if let Some((last, rows)) = last.replace((added, 1)) {
                    *self.counts.entry(last).or_default() += rows;
                }
            }
        }
    }

    fn iter(&self) -> impl Iterator<Item = (Added, u64)> {
        self.counts.iter().map(|(added, rows)| (*added, *rows)).chain(self.last)
    }
}

impl<'p> ChangeCounts<'p> {
    pub fn new(previous: &'p LoadedExceptions) -> Self {
        let mut before: HashMap<_, Vec<_>> = HashMap::new();
        for row in previous.exceptions.rows() {
            before.entry((&**row.source.name(), row_identity(row))).or_default().push(row);
        }
        Self { previous, before, files: Vec::new() }
    }

    /// Assigns the following rows to this file.
    pub fn start_file(&mut self, name: &Arc<str>) {
        self.files.push(FileSummary { name: Arc::clone(name), ..FileSummary::default() });
    }

    pub fn add_row(&mut self, row: &ExceptionRow, identity: u64) {
        let Some(file) = self.files.last_mut() else { return };
        file.rows += 1;
        file.kinds.add_row(row);
        match self.before.get(&(&**row.source.name(), identity)) {
            None => file.changes.added += 1,
            Some(before) if !before.iter().any(|before| is_same(before, row)) => file.changes.changed += 1,
            Some(_) => {}
        }
    }

    /// Adds the rows of CSV files, and compares each file with its previous state.
    pub fn finish(mut self, added: &AddedCounts, exceptions: &Exceptions) -> Counted {
        let mut repeated: HashMap<Arc<str>, u64> = HashMap::new();
        for (row, rows) in added.iter() {
            match row.replaced_by {
                None => self.count_tiers(exceptions, row.mark, row.before, rows),
                Some(later) => {
                    if let Some(tier) = exceptions.tier(later) {
                        *repeated.entry(Arc::clone(&tier.file)).or_default() += rows;
                    }
                }
            }
        }
        let mut gone = Vec::new();
        for before in &self.previous.files {
            match self.files.iter_mut().find(|file| file.name == before.name) {
                // Rows that are neither new nor kept are gone.
                Some(file) => {
                    let kept = file.rows.saturating_sub(file.changes.added);
                    file.changes.removed = before.rows.saturating_sub(kept);
                }
                None if before.rows > 0 => {
                    let changes = RowChanges { removed: before.rows, ..RowChanges::default() };
                    gone.push(FileSummary {
                        rows: 0,
                        kinds: KindCounts::default(),
                        changes,
                        ..before.clone()
                    });
                }
                None => {}
            }
        }
        let mut repeated: Vec<_> = repeated.into_iter().collect();
        repeated.sort();
        Counted { files: self.files, gone, repeated }
    }

    /// Counts rows that have the mark now, and had `before` in the previous table.
    fn count_tiers(&mut self, exceptions: &Exceptions, mark: TierMark, before: Option<TierMark>, rows: u64) {
        let Some(now) = exceptions.tier(mark) else { return };
        let Some(file) = self.files.iter_mut().find(|file| file.name == now.file) else { return };
        file.rows += rows;
        let before = before.and_then(|mark| self.previous.exceptions.tier(mark));
        match before.filter(|before| before.file == now.file) {
            None => file.changes.added += rows,
            Some(before) if before.tier != now.tier => file.changes.changed += rows,
            Some(_) => {}
        }
        file.kinds.add_rows(ExceptionKind::Tier, rows);
    }
}

/// `true` if two rows with the same identity have the same content.
fn is_same(before: &ExceptionRow, now: &ExceptionRow) -> bool {
    let times = |row: &ExceptionRow| (row.from_us, row.until_us);
    let told = |row: &ExceptionRow| (row.effect.clone(), times(row), row.reason.clone(), row.by.clone());
    told(before) == told(now)
}
