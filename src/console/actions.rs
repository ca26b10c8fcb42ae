//! Shows and resets a denied key's counter by its row's id, so that nobody needs the key's value to act on it.

use std::sync::Arc;

use engine::algorithm::Kernel;
use engine::{Entry, KeyText, KeyValue, Limit, Outcome, Quantity, Reset, RuleSet, Store, parse_key};

use super::mask::{ID_DIGITS, KeyEntry, unmasked};
use super::{Console, DeniedRow};
use crate::decide::NoDecision;
use crate::decide::counters::CounterService;

/// Maximum rows whose values are shown together.
pub const MOST_VALUES: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowId(String);

impl RowId {
    /// `None` if `text` is not an id.
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Self(text.to_owned()))
    }

    pub fn text(&self) -> &str {
        &self.0
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    #[error(
        "no row has the id {0}: the key was not denied in the last 15 minutes, or too many others were \
             denied more often"
    )]
    NoRow(String),
    #[error("limit {0} of this row has changed; reload the console")]
    Changed(Arc<str>),
    #[error(
        "the value of this entry is not known: only its start is kept, or all values of a pattern count together"
    )]
    NoValue,
    #[error("the key has no counter: an exception blocks it, or the limit of its tier is 0")]
    Blocked,
    #[error(transparent)]
    NoDecision(#[from] NoDecision),
}

#[derive(Debug)]
pub struct RowStatus {
    pub row: DeniedRow,
    /// The rule's limit; `None` for one that came with the request.
    pub limit: Option<Arc<Limit>>,
    /// Of a peek.
    pub outcome: Outcome,
}

#[derive(Debug)]
pub struct ConsoleActions<S> {
    pub console: Arc<Console>,
    pub service: CounterService<S>,
}

impl<S: Store + Reset> ConsoleActions<S> {
    /// Shows a row's counter. Changes nothing.
    ///
    /// # Errors
    /// [`ActionError`] if the row does not exist, its rule has changed or does not count, or the store does not answer.
    pub async fn show(&self, id: &RowId) -> Result<RowStatus, ActionError> {
        let (row, limit) = self.row_in_force(id)?;
        let outcome = self.service.show_counter(&row.key, row.charge.kernel).await?;
        Ok(RowStatus { row, limit, outcome })
    }

    /// Empties a row's counter. Returns the row, with `true` if the counter had units.
    ///
    /// # Errors
    /// As for [`show`](Self::show).
    pub async fn reset(
        &self,
        id: &RowId,
        audit: impl FnOnce(&DeniedRow),
    ) -> Result<(DeniedRow, bool), ActionError> {
        let (row, _) = self.row_in_force(id)?;
        audit(&row);
        let had_units = self.service.reset_counter(&row.key, row.charge.kernel).await?;
        self.console.mark_reset();
        Ok((row, had_units))
    }

    /// Returns the entries of these rows with their values, by id, without rows that are gone. Secret values stay
    /// hashes.
    pub fn values(&self, ids: &[RowId]) -> Vec<(String, Vec<KeyEntry>)> {
        let rows = ids.iter().take(MOST_VALUES).filter_map(|id| self.console.row(id));
        rows.map(|row| (row.id, unmasked(&row.key))).collect()
    }

    /// Returns a row's domain, and the entry at this index in its key, or else the last one. A secret value is hashed.
    ///
    /// # Errors
    /// [`ActionError`] if the row or the entry does not exist, or its value is not kept.
    pub fn entry(&self, id: &RowId, index: Option<usize>) -> Result<(String, Entry), ActionError> {
        let row = self.console.row(id).ok_or_else(|| ActionError::NoRow(id.text().to_owned()))?;
        let parsed = parse_key(&row.key).ok_or(ActionError::NoValue)?;
        let index = index.unwrap_or(parsed.entries.len().saturating_sub(1));
        match (&parsed.domain, parsed.entries.get(index)) {
            (
                KeyText::Plain(domain),
                Some((KeyText::Plain(key), KeyValue::Plain(value) | KeyValue::Secret(value))),
            ) => Ok((domain.clone(), Entry { key: key.clone(), value: value.clone() })),
            _ => Err(ActionError::NoValue),
        }
    }

    fn row_in_force(&self, id: &RowId) -> Result<(DeniedRow, Option<Arc<Limit>>), ActionError> {
        let row = self.console.row(id).ok_or_else(|| ActionError::NoRow(id.text().to_owned()))?;
        let is_override = parse_key(&row.key).is_some_and(|key| key.fingerprint.starts_with("o:"));
        if is_override {
            return Ok((row, None));
        }
        let limit = limit_of(&row, &self.service.rulebook.rules());
        let limit = limit.ok_or_else(|| ActionError::Changed(Arc::clone(&row.rule)))?;
        let is_blocked = |quantity| matches!(quantity, Quantity::Limited(Kernel::Blocked(_)));
        if is_blocked(Quantity::Limited(row.charge.kernel)) && !is_blocked(row.charge.rule) {
            return Err(ActionError::Blocked);
        }
        Ok((row, Some(limit)))
    }
}

/// Returns the rule's limit for a row, if it has not changed since the key was denied. Tiers and exceptions may have
/// given the key a different limit.
fn limit_of(row: &DeniedRow, rules: &RuleSet) -> Option<Arc<Limit>> {
    let fingerprint = parse_key(&row.key)?.fingerprint;
    // The counter keys of these kernels contain the value that decided.
    let has_number_in_key = matches!(row.charge.kernel, Kernel::IntervalBucket(_) | Kernel::Blocked(_));
    let is_same = |limit: &Limit| {
        limit.label == row.rule
            && limit.quantity == row.charge.rule
            && limit.quantity != Quantity::Unlimited
            && (has_number_in_key || *limit.fingerprint == *fingerprint)
    };
    let of_domain = rules.rules().iter().filter(|rule| rule.domain == row.domain);
    of_domain.flat_map(|rule| &rule.limits).find(|limit| is_same(limit)).cloned()
}
