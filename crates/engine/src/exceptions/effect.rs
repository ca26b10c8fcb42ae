//! What the rows of a descriptor make of one of its limits, in this order: a row that blocks, a row that exempts, the
//! number, its multiplier, shadow mode.

use std::cmp::Reverse;
use std::sync::Arc;

use smallvec::SmallVec;

use super::derivation::{Amount, Change, ChangedBy, DerivationStep, Unfit};
use super::look_up::{AnyRow, MatchedRow, Place};
use super::rows::{Effect, ExceptionRow};
use crate::limit::{Limit, Quantity};

/// A limit that rows or a tier have changed.
pub(crate) struct Changed {
    pub(crate) limit: Arc<Limit>,
    /// Empty if nothing changed.
    pub(crate) steps: SmallVec<[DerivationStep; 2]>,
}

/// What blocks a limit.
pub(super) struct Block<'x> {
    row: &'x Arc<ExceptionRow>,
    /// The end, also if the last row to end is another one; `None` if a row without an end blocks by then.
    until_us: Option<u64>,
}

impl Block<'_> {
    /// The limit, blocked.
    pub(super) fn apply_to(&self, limit: &Limit) -> Changed {
        let until_us = self.until_us;
        Changed::whole(limit.as_blocked(until_us), Change::Blocked { until_us }, self.row)
    }
}

/// The rows that are for one limit.
pub(super) struct RowsOfLimit<'m, 'x>(SmallVec<[&'m MatchedRow<'x>; 4]>);

impl<'m, 'x> RowsOfLimit<'m, 'x> {
    /// The rows whose path and limit name are those of the limit.
    pub(super) fn new(matched: &'m [MatchedRow<'x>], path: &str, limit_name: &str) -> Self {
        let is_for_limit = |matched: &&MatchedRow<'_>| match matched.row {
            AnyRow::Full(row) => row.path.matches(path) && row.limit_name.matches(limit_name),
            AnyRow::Tier(_) => true,
        };
        Self(matched.iter().filter(is_for_limit).collect())
    }

    /// The block of the limit.
    pub(super) fn block(&self) -> Option<Block<'x>> {
        let blocking = |at_us| self.access(|effect| effect.block, at_us);
        let row = blocking(0)?;
        // When a row ends, another one may block.
        let mut until_us = row.until_us;
        while let Some(next) = until_us.and_then(blocking) {
            until_us = next.until_us;
        }
        Some(Block { row, until_us })
    }

    /// The row that `is_wanted` chooses at a time from now on, of the rows that block or exempt. Of the rows for one
    /// entry, those with the most precise value count: an exempt office may be a part of a blocked network.
    fn access(&self, is_wanted: impl Fn(&Effect) -> bool, at_us: u64) -> Option<&'x Arc<ExceptionRow>> {
        let decides = |row: &ExceptionRow| (row.effect.block || row.effect.exempt) && row.is_in_force(at_us);
        let rows = || self.full_rows().filter(|(_, row)| decides(row));
        let is_most_precise = |place: &Place| {
            let mut same_entry = rows().filter(|(other, _)| other.entry == place.entry);
            same_entry.all(|(other, _)| other.precision <= place.precision)
        };
        let counting = rows().filter(|(place, row)| is_wanted(&row.effect) && is_most_precise(place));
        counting.max_by_key(|(place, row)| (row.names_limits(), *place)).map(|(_, row)| row)
    }

    fn full_rows(&self) -> impl Iterator<Item = (Place, &'x Arc<ExceptionRow>)> {
        self.0.iter().filter_map(|matched| match matched.row {
            AnyRow::Full(row) => Some((matched.place, row)),
            AnyRow::Tier(_) => None,
        })
    }

    /// The value of one column, with the row that counts for it.
    fn column<T>(&self, value: impl Fn(&'x Effect) -> Option<T>) -> Option<(T, &'x Arc<ExceptionRow>)> {
        let set = self.full_rows().filter_map(|(place, row)| Some((value(&row.effect)?, place, row)));
        set.max_by_key(|(_, place, row)| (row.names_limits(), *place)).map(|(value, _, row)| (value, row))
    }

    /// The tier of the row that counts for it.
    fn tier(&self) -> Option<(&'x Arc<str>, ChangedBy)> {
        let tiers = self.0.iter().filter_map(|matched| match matched.row {
            AnyRow::Full(row) => {
                let by = || ChangedBy::Row(Arc::clone(row));
                Some(((row.names_limits(), matched.place), row.effect.tier.as_ref()?, by()))
            }
            AnyRow::Tier(tier) => Some(((false, matched.place), &tier.tier, ChangedBy::Tier(tier.clone()))),
        });
        tiers.min_by_key(|(order, ..)| Reverse(*order)).map(|(_, tier, by)| (tier, by))
    }
}

/// What `rows`, and the tier of an entry of the request, make of `limit`.
pub(super) fn changed(limit: &Arc<Limit>, rows: &RowsOfLimit<'_, '_>, entry_tier: Option<&str>) -> Changed {
    if let Some(block) = rows.block() {
        return block.apply_to(limit);
    }
    if let Some(row) = rows.access(|effect| effect.exempt, 0) {
        return Changed::whole(limit.as_exempt(), Change::Exempt, row);
    }
    let mut changed = Changed { limit: Arc::clone(limit), steps: SmallVec::new() };
    if let Some((number, row)) = rows.column(|effect| effect.limit) {
        let number = limit.spec.at_least_reserved(number);
        changed.set_number(number, limit, Change::Number(number), row);
    } else if !limit.tiers.is_empty() {
        match entry_tier {
            Some(name) => changed.set_tier(limit, None, name, ChangedBy::Entry),
            None => {
                if let Some((name, by)) = rows.tier() {
                    changed.set_tier(limit, Some(name), name, by);
                }
            }
        }
    }
    if let Some((multiplier, row)) = rows.column(|effect| effect.multiplier) {
        let number = limit.spec.at_least_reserved(multiplier.times(changed.limit.spec.requests_per_unit));
        changed.set_number(number, limit, Change::Multiplied(multiplier, number), row);
    }
    if let Some((shadow, row)) = rows.column(|effect| effect.shadow_mode)
        && shadow != limit.shadow
    {
        changed.limit = Arc::new(changed.limit.with_shadow(shadow));
        changed
            .steps
            .push(DerivationStep { change: Change::Shadow(shadow), by: ChangedBy::Row(Arc::clone(row)) });
    }
    changed
}

impl Changed {
    /// A limit that one row has replaced.
    fn whole(limit: Limit, change: Change, row: &Arc<ExceptionRow>) -> Self {
        let step = DerivationStep { change, by: ChangedBy::Row(Arc::clone(row)) };
        Self { limit: Arc::new(limit), steps: SmallVec::from_iter([step]) }
    }

    /// Gives the limit a tier. `known` is the name as a row has it: a name from a request is not repeated.
    fn set_tier(&mut self, rule: &Limit, known: Option<&Arc<str>>, name: &str, by: ChangedBy) {
        let change = match rule.tier(name) {
            Some(tier) => {
                self.limit = Arc::clone(&tier.limit);
                Change::Tier(Arc::clone(&tier.name), Amount::for_limit(&tier.limit))
            }
            None => Change::UnknownTier(known.cloned()),
        };
        self.steps.push(DerivationStep { change, by });
    }

    fn set_number(&mut self, number: u64, rule: &Limit, change: Change, row: &Arc<ExceptionRow>) {
        let changed = match self.limit.quantity {
            Quantity::Unlimited => Err(Unfit::Unlimited),
            Quantity::Limited(_) => self.limit.with_number(number, rule).map_err(Unfit::from),
        };
        let change = match changed {
            Ok(limit) => {
                self.limit = Arc::new(limit);
                change
            }
            Err(unfit) => Change::Unfit(unfit),
        };
        self.steps.push(DerivationStep { change, by: ChangedBy::Row(Arc::clone(row)) });
    }
}
