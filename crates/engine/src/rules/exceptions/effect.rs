//! Applies a descriptor's exceptions to one of its limits, in this order: block, exempt, limit or tier, multiplier,
//! shadow mode.

use std::cmp::Reverse;
use std::sync::Arc;

use smallvec::SmallVec;

use super::derivation::{Amount, Change, ChangedBy, DerivationStep, Unfit};
use super::rows::{AnyRow, Effect, ExceptionRow, MatchedRow, Place};
use crate::limit::{Limit, Quantity};

/// A limit after exceptions and tiers.
pub(crate) struct Changed {
    pub(crate) limit: Arc<Limit>,
    /// Empty if nothing changed.
    pub(crate) steps: SmallVec<[DerivationStep; 2]>,
}

pub(super) struct Block<'x> {
    row: &'x Arc<ExceptionRow>,
    /// End of the block, which other exceptions may extend beyond that of `row`; `None` if one of them has no end.
    until_us: Option<u64>,
}

impl Block<'_> {
    pub(super) fn apply_to(&self, limit: &Limit) -> Changed {
        let until_us = self.until_us;
        Changed::whole(limit.as_blocked(until_us), Change::Blocked { until_us }, self.row)
    }
}

/// The exceptions for one entry that block or exempt and have values of one precision.
struct AccessRank {
    entry: usize,
    precision: u8,
    /// The latest end.
    until_us: u64,
    /// The latest end of those that block; 0 if none does.
    blocks_until_us: u64,
}

/// The end of an exception without one.
const NO_END: u64 = u64::MAX;

/// Returns the end of a block that is active at this time. Only the most precise active exceptions of an entry apply.
fn blocked_until(ranks: &[AccessRank], at_us: u64) -> Option<u64> {
    let counts = |rank: &&AccessRank| {
        let mut same_entry = ranks.iter().filter(|other| other.entry == rank.entry && other.until_us > at_us);
        rank.blocks_until_us > at_us && same_entry.all(|other| other.precision <= rank.precision)
    };
    ranks.iter().filter(counts).map(|rank| rank.blocks_until_us).max()
}

/// The exceptions that apply to one limit.
pub(super) struct RowsOfLimit<'m, 'x>(SmallVec<[&'m MatchedRow<'x>; 4]>);

impl<'m, 'x> RowsOfLimit<'m, 'x> {
    /// Selects the exceptions whose path and limit name match the limit.
    pub(super) fn new(matched: &'m [MatchedRow<'x>], path: &str, limit_name: &str) -> Self {
        let is_for_limit = |matched: &&MatchedRow<'_>| match matched.row {
            AnyRow::Full(row) => row.path.matches(path) && row.limit_name.matches(limit_name),
            AnyRow::Tier(_) => true,
        };
        Self(matched.iter().filter(is_for_limit).collect())
    }

    pub(super) fn block(&self) -> Option<Block<'x>> {
        let row = self.access(|effect| effect.block)?;
        let ranks = self.ranks();
        // When an exception ends, another may block.
        let mut until_us = 0;
        while let Some(later_us) = blocked_until(&ranks, until_us) {
            until_us = later_us;
        }
        Some(Block { row, until_us: Some(until_us).filter(|until_us| *until_us < NO_END) })
    }

    /// Picks the exception that `is_wanted` selects among those that block or exempt. For one entry, the most precise
    /// value wins: an exempt office may be part of a blocked network.
    fn access(&self, is_wanted: impl Fn(&Effect) -> bool) -> Option<&'x Arc<ExceptionRow>> {
        let ranks = self.ranks();
        let is_most_precise = |place: &Place| {
            let mut same_entry = ranks.iter().filter(|rank| rank.entry == place.entry);
            same_entry.all(|rank| rank.precision <= place.precision)
        };
        let counting =
            self.access_rows().filter(|(place, row)| is_wanted(&row.effect) && is_most_precise(place));
        counting.max_by_key(|(place, row)| (row.names_limits(), *place)).map(|(_, row)| row)
    }

    /// The ends of the exceptions that block or exempt, once per precision: few, however many exceptions a value has.
    fn ranks(&self) -> SmallVec<[AccessRank; 2]> {
        let mut ranks: SmallVec<[AccessRank; 2]> = SmallVec::new();
        for (Place { entry, precision, .. }, row) in self.access_rows() {
            let is_same = |rank: &AccessRank| rank.entry == entry && rank.precision == precision;
            let at = ranks.iter().position(is_same).unwrap_or_else(|| {
                ranks.push(AccessRank { entry, precision, until_us: 0, blocks_until_us: 0 });
                ranks.len() - 1
            });
            let until_us = row.until_us.unwrap_or(NO_END);
            let rank = &mut ranks[at];
            rank.until_us = rank.until_us.max(until_us);
            if row.effect.block {
                rank.blocks_until_us = rank.blocks_until_us.max(until_us);
            }
        }
        ranks
    }

    fn access_rows(&self) -> impl Iterator<Item = (Place, &'x Arc<ExceptionRow>)> {
        self.full_rows().filter(|(_, row)| row.effect.block || row.effect.exempt)
    }

    fn full_rows(&self) -> impl Iterator<Item = (Place, &'x Arc<ExceptionRow>)> {
        self.0.iter().filter_map(|matched| match matched.row {
            AnyRow::Full(row) => Some((matched.place, row)),
            AnyRow::Tier(_) => None,
        })
    }

    /// The winning value of one column, with its exception.
    fn column<T>(&self, value: impl Fn(&'x Effect) -> Option<T>) -> Option<(T, &'x Arc<ExceptionRow>)> {
        let set = self.full_rows().filter_map(|(place, row)| Some((value(&row.effect)?, place, row)));
        set.max_by_key(|(_, place, row)| (row.names_limits(), *place)).map(|(value, _, row)| (value, row))
    }

    /// The winning tier.
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

/// Applies `rows`, and the tier of an entry of the request, to `limit`.
pub(super) fn changed(limit: &Arc<Limit>, rows: &RowsOfLimit<'_, '_>, entry_tier: Option<&str>) -> Changed {
    if let Some(block) = rows.block() {
        return block.apply_to(limit);
    }
    if let Some(row) = rows.access(|effect| effect.exempt) {
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
    /// A limit that one exception replaces.
    fn whole(limit: Limit, change: Change, row: &Arc<ExceptionRow>) -> Self {
        let step = DerivationStep { change, by: ChangedBy::Row(Arc::clone(row)) };
        Self { limit: Arc::new(limit), steps: SmallVec::from_iter([step]) }
    }

    /// Applies a tier to the limit. `known` is its name in an exception; a name from a request is not repeated.
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
