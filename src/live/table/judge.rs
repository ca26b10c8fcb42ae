//! Decides writes without Redis, as `rows.lua` does.

use store::redis::{PutKind, PutResult, RowPut, StoredRow};

use super::{KEPT_US, LiveTable, TableRow};

const MOST_ROWS: usize = 100_000;
const MOST_AUTOMATIC: usize = 20_000;

impl LiveTable {
    /// Writes all rows, or none if one is refused.
    pub(in crate::live) fn put_all(&mut self, puts: &[RowPut], now_us: u64) -> Vec<PutResult> {
        let mut version = self.newest.max(now_us.saturating_sub(1));
        let mut room = MOST_ROWS.saturating_sub(self.present);
        let mut automatic_room = MOST_AUTOMATIC.saturating_sub(self.automatic);
        let mut results = Vec::with_capacity(puts.len());
        for put in puts {
            let is_new =
                put.json.is_some() && !self.rows.get(put.id.as_str()).is_some_and(TableRow::is_present);
            let mut result = self.judge(put, now_us);
            if is_new && (room == 0 || put.is_automatic && automatic_room == 0) {
                result = PutResult::Full;
            }
            if let PutResult::Written { version: written, .. } = &mut result
                && !matches!(put.kind, PutKind::Drop { .. })
            {
                version += 1;
                *written = version;
                room -= usize::from(is_new);
                automatic_room -= usize::from(is_new && put.is_automatic);
            }
            results.push(result);
        }
        let is_refused =
            results.iter().any(|result| matches!(result, PutResult::Conflict(_) | PutResult::Full));
        for (put, result) in puts.iter().zip(&mut results) {
            let PutResult::Written { version, until_us, level } = *result else { continue };
            match put.kind {
                _ if is_refused => *result = PutResult::Unwritten,
                PutKind::Drop { .. } => self.forget(&put.id),
                _ => {
                    let RowPut { id, is_automatic, json, .. } = put.clone();
                    self.apply(StoredRow { id, version, until_us, level, is_automatic, json });
                }
            }
        }
        results
    }

    fn judge(&self, put: &RowPut, now_us: u64) -> PutResult {
        let known = self.rows.get(put.id.as_str());
        let row = known.filter(|row| row.is_present());
        let in_force = row.filter(|row| !row.has_ended(now_us));
        let kept = |row: &TableRow| PutResult::Kept(row.stored(&put.id));
        let written = |until_us, level| PutResult::Written { version: 0, until_us, level };
        match put.kind {
            PutKind::Set { if_version: Some(0) } => match in_force {
                Some(row) => PutResult::Conflict(Some(row.stored(&put.id))),
                None => written(put.until_us, 0),
            },
            PutKind::Set { if_version: Some(version) } if known.is_none_or(|row| row.version != version) => {
                PutResult::Conflict(known.map(|row| row.stored(&put.id)))
            }
            PutKind::Set { .. } | PutKind::Restore { .. } => written(put.until_us, 0),
            PutKind::Later => match in_force {
                Some(row) if ends(row.until_us) >= ends(put.until_us) => kept(row),
                _ => written(put.until_us, 0),
            },
            PutKind::Ban { for_us, grow, max_us } => match in_force {
                Some(row) => kept(row),
                None => {
                    let is_repeated = |row: &&TableRow| now_us.saturating_sub(ends(row.until_us)) < max_us;
                    let level = row.filter(is_repeated).map_or(0, |row| row.level.saturating_add(1));
                    let length_us = for_us.saturating_mul(grow.saturating_pow(level)).min(max_us);
                    written(Some(now_us.saturating_add(length_us)), level)
                }
            },
            PutKind::Drop { version } => {
                let over_since =
                    known.filter(|row| row.version == version).and_then(|row| row.over_since(now_us));
                let kept_us = if row.is_some() && put.is_automatic { 0 } else { KEPT_US };
                match over_since {
                    Some(since_us) if since_us.saturating_add(kept_us) <= now_us => written(None, 0),
                    _ => PutResult::Newer,
                }
            }
        }
    }
}

fn ends(until_us: Option<u64>) -> u64 {
    until_us.unwrap_or(u64::MAX)
}
