//! Blocks a value for a time: after repeated denials (a ban), or because a caller was asked to wait (feedback).

use std::net::IpAddr;
use std::sync::Arc;

use engine::{Effect, ExceptionRow, Glob, Network, RowSource, RowTerms, RowValue};
use rules::{LiveRow, Origin};
use store::redis::{PutKind, PutResult, RowPut};

use super::change::without_secret;
use super::{LiveError, LiveExceptions};

/// Feedback is not sent if the current row ends at most this much earlier: many callers report one answer.
const SAME_END_US: u64 = 1_000_000;

/// A value to block.
#[derive(Clone, Debug)]
pub struct Pause {
    pub domain: Arc<str>,
    pub key: Arc<str>,
    /// As in the request.
    pub value: Arc<str>,
    /// The path of a rule below its domain; `None`: every rule.
    pub path: Option<Arc<str>>,
    pub reason: String,
    pub end: PauseEnd,
}

/// All in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseEnd {
    /// Since the epoch. Counts if it is later than the current end.
    Feedback { until_us: u64 },
    /// If a ban follows the last one within `max_us`, it is `grow` times longer, up to `max_us`.
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
    /// Blocks a value, at once here, elsewhere after the next poll. Feedback applies here even while Redis is away,
    /// which then receives the row like one that it lost.
    ///
    /// # Errors
    /// [`LiveError::Full`] with 20,000 rows of this kind. [`LiveError::Unavailable`] for a ban that Redis does not
    /// answer.
    pub async fn pause(&self, pause: Pause) -> Result<Paused, LiveError> {
        let row = self.pause_row(&pause)?;
        let (kind, is_kept_here) = match pause.end {
            PauseEnd::Feedback { .. } => (PutKind::Later, true),
            PauseEnd::Ban { for_us, grow, max_us } => (PutKind::Ban { for_us, grow, max_us }, false),
        };
        let (id, until_us, now_us) = (row.id().to_string(), row.row.until_us, self.now_us());
        let wanted_us = until_us.map_or(0, |until_us| until_us.saturating_sub(SAME_END_US));
        let known = self.known(&id).filter(|known| known.row.is_in_force(now_us));
        if known.is_some_and(|known| known.row.until_us.is_none_or(|until_us| until_us >= wanted_us)) {
            return Ok(Paused::Kept);
        }
        let put = RowPut { id, kind, until_us, is_automatic: true, json: Some(row.stored()) };
        let results = if is_kept_here && self.with_state(|state| state.is_away) {
            self.put_here(&[put])
        } else {
            match self.put(vec![put.clone()]).await {
                Err(LiveError::Unavailable(_)) if is_kept_here => self.put_here(&[put]),
                results => results?,
            }
        };
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
        let Pause { domain, key, value, path, reason, end } = pause;
        let address: Option<IpAddr> = value.parse().ok();
        let (origin, until_us) = match end {
            PauseEnd::Feedback { until_us } => (Origin::Feedback, Some(*until_us)),
            PauseEnd::Ban { .. } => (Origin::Penalty, None),
        };
        let terms = RowTerms {
            domain: Glob::Exact(domain.to_string()),
            key: Arc::clone(key),
            path: path.as_ref().map_or(Glob::Any, |path| Glob::Exact(path.to_string())),
            effect: Effect { block: true, ..Effect::default() },
            reason: Some(reason.as_str().into()),
            ..RowTerms::default()
        };
        let row = ExceptionRow {
            source: RowSource::Live { id: "".into(), version: 0 },
            value: address.map_or_else(
                || RowValue::Exact(Arc::clone(value)),
                |address| RowValue::Network(Network::of_address(address)),
            ),
            from_us: None,
            until_us,
            terms: terms.into(),
        };
        let rules = self.0.options.rulebook.rules();
        let row = without_secret(LiveRow::new(row, origin, 0), &rules).map_err(LiveError::Invalid)?;
        row.check(self.now_us()).map_err(LiveError::Invalid)?;
        Ok(row)
    }
}
