//! Blocks a value for a time: after repeated denials (a ban), or because a caller was asked to wait (feedback).

use std::net::IpAddr;
use std::sync::Arc;

use engine::{Effect, ExceptionRow, Glob, Network, RowSource, RowValue};
use rules::{LiveRow, Origin};
use store::redis::{PutKind, PutResult, RowPut};

use super::change::without_secret;
use super::{Keeper, LiveError, LiveExceptions};

/// Feedback is not sent if the current row ends at most this much earlier: many callers report one answer.
const SAME_END_US: u64 = 1_000_000;
/// Feedback that waits for Redis.
const MOST_PENDING: usize = 1_000;

/// A value to block.
#[derive(Clone, Debug)]
pub struct Pause {
    pub domain: Arc<str>,
    pub key: Arc<str>,
    /// As in the request.
    pub value: Arc<str>,
    /// The path of a rule below its domain; `None`: every rule.
    pub path: Option<Arc<str>>,
    /// The name of a limit; `None`: every limit.
    pub limit_name: Option<Arc<str>>,
    pub reason: String,
    pub end: PauseEnd,
}

/// All in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseEnd {
    /// Since the epoch. Counts if it is later than the current end.
    Feedback { until_us: u64 },
    /// Each ban that follows the last one within `max_us` is `grow` times longer, up to `max_us`.
    Ban { for_us: u64, grow: u64, max_us: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// `level`: how many bans came before this one, each soon after the other.
    Set { until_us: Option<u64>, level: u32 },
    /// The value is blocked already.
    Kept,
}

impl LiveExceptions {
    /// Blocks a value, at once here, elsewhere after the next poll. Feedback is kept for Redis while it is away.
    ///
    /// # Errors
    /// [`LiveError::Full`] with 20,000 rows of this kind. [`LiveError::Unavailable`] for a ban that Redis does not
    /// answer.
    pub async fn pause(&self, pause: Pause) -> Result<Paused, LiveError> {
        let row = self.pause_row(&pause)?;
        let kind = match pause.end {
            PauseEnd::Feedback { .. } => PutKind::Later,
            PauseEnd::Ban { for_us, grow, max_us } => PutKind::Ban { for_us, grow, max_us },
        };
        let (until_us, now_us) = (row.row.until_us, self.now_us());
        let put =
            RowPut { id: row.id().to_string(), kind, until_us, is_automatic: true, json: Some(row.stored()) };
        let wanted_us = until_us.map_or(0, |until_us| until_us.saturating_sub(SAME_END_US));
        let is_kept = self.with_state(|state| {
            let pending = state.pending.get(row.id()).map(|(row, _)| row.clone());
            let known = pending.or_else(|| state.table.get(row.id()).and_then(|known| known.row()).cloned());
            let known = known.filter(|known| known.row.is_in_force(now_us));
            known.is_some_and(|known| known.row.until_us.is_none_or(|until_us| until_us >= wanted_us))
        });
        if is_kept {
            return Ok(Paused::Kept);
        }
        let is_sent_later = kind == PutKind::Later && matches!(self.0.options.keeper, Keeper::Redis(_));
        if is_sent_later && !self.show_pending(&row, &put) {
            return Err(LiveError::Full);
        }
        if is_sent_later {
            self.publish().await;
        }
        let id = put.id.clone();
        let results = match self.put(vec![put]).await {
            // It takes effect here, and the next poll sends it.
            Err(LiveError::Unavailable(_)) if is_sent_later => return Ok(Paused::Set { until_us, level: 0 }),
            results => results?,
        };
        self.with_state(|state| state.settle_pending(&id));
        self.publish().await;
        match results.first() {
            Some(PutResult::Written { until_us, level, .. }) => {
                Ok(Paused::Set { until_us: *until_us, level: *level })
            }
            Some(PutResult::Full) => Err(LiveError::Full),
            _ => Ok(Paused::Kept),
        }
    }

    fn pause_row(&self, pause: &Pause) -> Result<LiveRow, LiveError> {
        let Pause { domain, key, value, path, limit_name, reason, end } = pause;
        let address: Option<IpAddr> = value.parse().ok();
        let pattern =
            |text: &Option<Arc<str>>| text.as_ref().map_or(Glob::Any, |text| Glob::Exact(text.to_string()));
        let (origin, until_us) = match end {
            PauseEnd::Feedback { until_us } => (Origin::Feedback, Some(*until_us)),
            PauseEnd::Ban { .. } => (Origin::Penalty, None),
        };
        let row = ExceptionRow {
            source: RowSource::Live { id: "".into(), version: 0 },
            domain: Glob::Exact(domain.to_string()),
            key: Arc::clone(key),
            value: address.map_or_else(
                || RowValue::Exact(Arc::clone(value)),
                |address| RowValue::Network(Network::of_address(address)),
            ),
            path: pattern(path),
            limit_name: pattern(limit_name),
            effect: Effect { block: true, ..Effect::default() },
            from_us: None,
            until_us,
            reason: Some(reason.as_str().into()),
            by: None,
        };
        let rules = self.0.options.rulebook.rules();
        let row = without_secret(LiveRow::new(row, origin, 0), &rules).map_err(LiveError::Invalid)?;
        row.check(self.now_us()).map_err(LiveError::Invalid)?;
        Ok(row)
    }

    /// Makes feedback take effect before Redis has it. `false`: too much of it waits.
    fn show_pending(&self, row: &LiveRow, put: &RowPut) -> bool {
        self.with_state(|state| {
            let has_room = state.pending.len() < MOST_PENDING || state.pending.contains_key(row.id());
            if has_room {
                state.pending.insert(Arc::clone(row.id()), (row.clone(), put.clone()));
                state.table.show(row);
                state.generation += 1;
            }
            has_room
        })
    }
}
