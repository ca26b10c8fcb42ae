//! Decides which rows are written, as lua/rows.lua does, for rows that are kept in this process. Pure: the time is an
//! argument.

use std::collections::HashMap;

use super::rows::{PutKind, PutResult, RowPut, StoredRow};

const MOST_ROWS: usize = 100_000;
const MOST_AUTOMATIC: usize = 20_000;
const WEEK_US: u64 = 7 * 86_400 * 1_000_000;

/// Describes the rows before a put.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowTotals {
    /// The greatest version so far.
    pub newest: u64,
    /// Rows, with removed ones. One call may exceed their bound.
    pub stored: usize,
    /// Rows that are not removed.
    pub present: usize,
    /// The automatic ones of these.
    pub automatic: usize,
}

/// Decides on all rows, or refuses all. `now_us`: microseconds since the epoch. `known`: the row with this id.
pub fn decide_puts(
    puts: &[RowPut],
    mut totals: RowTotals,
    now_us: u64,
    known: impl Fn(&str) -> Option<StoredRow>,
) -> Vec<PutResult> {
    // Rows that this call writes; `None`: it drops them.
    let mut written: HashMap<&str, Option<StoredRow>> = HashMap::new();
    let mut version = totals.newest.max(now_us.saturating_sub(1));
    let mut results = Vec::with_capacity(puts.len());
    for put in puts {
        let RowPut { id, is_automatic, json, kind, .. } = put;
        let old = written.get(&**id).cloned().unwrap_or_else(|| known(id));
        let row = old.as_ref().filter(|old| old.json.is_some());
        let (is_row, was_automatic) = (row.is_some(), row.is_some_and(|row| row.is_automatic));
        let needs_room = json.is_some() && !is_row && !matches!(kind, PutKind::Restore { .. });
        let mut result = judge(put, old.as_ref(), now_us);
        if matches!(result, PutResult::Written { .. }) && needs_room && totals.is_full(*is_automatic) {
            result = PutResult::Full;
        }
        if let PutResult::Written { version: new, until_us, level } = &mut result {
            let is_dropped = matches!(kind, PutKind::Drop { .. });
            if !is_dropped && *new == 0 {
                version += 1;
                *new = version;
            }
            totals.present = totals.present + usize::from(json.is_some()) - usize::from(is_row);
            totals.automatic =
                totals.automatic + usize::from(json.is_some() && *is_automatic) - usize::from(was_automatic);
            let row = StoredRow {
                id: id.clone(),
                version: *new,
                until_us: *until_us,
                level: *level,
                is_automatic: *is_automatic,
                json: json.clone(),
            };
            written.insert(id, (!is_dropped).then_some(row));
        }
        results.push(result);
    }
    let is_refusal = |result: &PutResult| matches!(result, PutResult::Conflict(_) | PutResult::Full);
    if results.iter().any(is_refusal) {
        let written = |result: &&mut PutResult| matches!(result, PutResult::Written { .. });
        results.iter_mut().filter(written).for_each(|result| *result = PutResult::Unwritten);
    }
    results
}

/// The version of a row that is written is 0, unless it keeps its own.
fn judge(put: &RowPut, old: Option<&StoredRow>, now_us: u64) -> PutResult {
    let row = old.filter(|old| old.json.is_some());
    let in_force = row.filter(|row| ends(row.until_us) > now_us);
    let written = |version, until_us, level| PutResult::Written { version, until_us, level };
    match put.kind {
        PutKind::Set { if_version: Some(wanted) }
            if old.map_or(0, |old| old.version) != wanted && (wanted != 0 || in_force.is_some()) =>
        {
            PutResult::Conflict(old.cloned())
        }
        PutKind::Set { .. } => written(0, put.until_us, 0),
        PutKind::Later => match in_force {
            Some(row) if ends(row.until_us) >= ends(put.until_us) => PutResult::Kept(row.clone()),
            _ => written(0, put.until_us, 0),
        },
        PutKind::Ban { for_us, grow, max_us } => match in_force {
            Some(row) => PutResult::Kept(row.clone()),
            None => {
                let is_repeated = |row: &&StoredRow| now_us.saturating_sub(ends(row.until_us)) < max_us;
                let level = row.filter(is_repeated).map_or(0, |row| row.level.saturating_add(1));
                let length_us = for_us.saturating_mul(grow.saturating_pow(level)).min(max_us);
                written(0, Some(now_us.saturating_add(length_us)), level)
            }
        },
        PutKind::Restore { version, .. } if old.is_some_and(|old| old.version >= version) => PutResult::Newer,
        PutKind::Restore { version, level } => written(version, put.until_us, level),
        PutKind::Drop { version } => {
            let over_us =
                old.filter(|old| old.version == version && in_force.is_none()).map(|old| match row {
                    Some(row) if row.is_automatic => ends(row.until_us),
                    Some(row) => ends(row.until_us).saturating_add(WEEK_US),
                    None => old.version.saturating_add(WEEK_US),
                });
            match over_us {
                Some(over_us) if over_us <= now_us => written(0, put.until_us, 0),
                _ => PutResult::Newer,
            }
        }
    }
}

impl RowTotals {
    fn is_full(self, is_automatic: bool) -> bool {
        self.present >= MOST_ROWS
            || is_automatic && self.automatic >= MOST_AUTOMATIC
            || self.stored >= 2 * MOST_ROWS
    }
}

fn ends(until_us: Option<u64>) -> u64 {
    until_us.unwrap_or(u64::MAX)
}
