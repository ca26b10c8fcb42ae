//! Shows and resets the counter of a row, by the row's id: nobody needs the value of a key to act on it.

use std::sync::Arc;

use engine::algorithm::Kernel;
use engine::{Limit, Quantity, Report, Reset, RuleSet, Store, parse_key};

use super::mask::{ID_DIGITS, KeyEntry, unmasked};
use super::{Console, DeniedRow};
use crate::decide::NoDecision;
use crate::decide::counters::CounterService;

/// Rows whose values are shown at once.
pub const MOST_VALUES: usize = 200;

/// The id of a row of denied keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowId(String);

impl RowId {
    /// `None` for a text that is no id.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Self(text.to_owned()))
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    #[error(
        "no row has the id {0}: the key was not denied in the last 15 minutes, or too many others were \
             denied more often"
    )]
    NoRow(String),
    #[error("limit {0} of this row has changed; reload the console")]
    Changed(Arc<str>),
    #[error("the key has no counter: an exception blocks it, or the limit of its tier is 0")]
    Blocked,
    #[error(transparent)]
    NoDecision(#[from] NoDecision),
}

/// The counter of a row.
#[derive(Debug)]
pub struct RowStatus {
    pub row: DeniedRow,
    /// The limit of the rule; `None` for one that came with the request.
    pub limit: Option<Arc<Limit>>,
    /// The report of a peek.
    pub report: Report,
}

/// Acts on rows of the console.
#[derive(Debug)]
pub struct ConsoleActions<S> {
    pub console: Arc<Console>,
    pub service: CounterService<S>,
}

impl<S: Store + Reset> ConsoleActions<S> {
    /// Shows the counter of a row. Changes nothing.
    ///
    /// # Errors
    /// [`ActionError`] when there is no such row, its rule has changed, it has no counter, or the store gives no
    /// answer.
    pub async fn show(&self, id: &RowId) -> Result<RowStatus, ActionError> {
        let (row, limit) = self.row_in_force(id)?;
        let report = self.service.show_counter(&row.key, row.charge.kernel).await?;
        Ok(RowStatus { row, limit, report })
    }

    /// Resets the counter of a row to unused. Returns the row, and whether the counter had units.
    ///
    /// # Errors
    /// As [`show`](Self::show).
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

    /// The entries of these rows with their values, by id. Rows that are gone are left out. Secret values stay hashes.
    #[must_use]
    pub fn values(&self, ids: &[RowId]) -> Vec<(String, Vec<KeyEntry>)> {
        let rows = ids.iter().take(MOST_VALUES).filter_map(|id| self.console.row(id));
        rows.map(|row| (row.id, unmasked(&row.key))).collect()
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

/// The limit of the rule that a row is of, if it is in force as it was when the key was denied. Tiers and rows of the
/// exceptions may have given the key another number.
fn limit_of(row: &DeniedRow, rules: &RuleSet) -> Option<Arc<Limit>> {
    let fingerprint = parse_key(&row.key)?.fingerprint;
    // The counters of these kernels have the number that decided in their keys.
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
