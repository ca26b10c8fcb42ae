//! Applies a descriptor's exceptions to one of its limits, in this order: block, exempt, limit or tier, multiplier,
//! grant, shadow mode.

use std::cmp::Reverse;
use std::sync::Arc;

use smallvec::SmallVec;

use super::derivation::{Amount, Change, ChangedBy, DerivationStep, Unfit};
use super::rows::{AnyRow, Effect, ExceptionRow, MatchedRow, Place};
use crate::limit::Limit;
use crate::limit::spec::MAX_LIMIT;

/// A limit after exceptions and tiers.
pub(crate) struct Changed {
    pub(crate) limit: Arc<Limit>,
    /// Empty if nothing changed.
    pub(crate) steps: SmallVec<[DerivationStep; 2]>,
}

pub(super) struct Block<'x> {
    row: &'x Arc<ExceptionRow>,
    /// The first time at which nothing blocks, because `row` and the exceptions that continue its block are over.
    /// `None` if something blocks forever.
    until_us: Option<u64>,
}

impl Block<'_> {
    pub(super) fn apply_to(&self, limit: &Limit) -> Changed {
        let until_us = self.until_us;
        Changed::whole(limit.as_blocked(until_us), Change::Blocked { until_us }, self.row)
    }
}

/// Counts the active exceptions that block or exempt: per entry and precision, because only the most precise ones of an
/// entry apply. Even a value with many exceptions needs few ranks.
#[derive(Default)]
struct AccessRanks {
    now: SmallVec<[AccessRank; 2]>,
    later: SmallVec<[RankChange; 2]>,
}

struct AccessRank {
    entry: usize,
    precision: u8,
    rows: i64,
    /// Those of `rows` that block.
    blocks: i64,
}

/// An exception starts, or ends and is subtracted.
#[derive(Clone, Copy)]
struct RankChange {
    at_us: u64,
    rank: usize,
    rows: i64,
    blocks: i64,
}

impl AccessRanks {
    fn new<'x>(rows: impl Iterator<Item = (Place, &'x Arc<ExceptionRow>)>, now_us: u64) -> Self {
        let mut ranks = Self::default();
        for (Place { entry, precision, .. }, row) in rows {
            let is_same = |rank: &AccessRank| rank.entry == entry && rank.precision == precision;
            let rank = ranks.now.iter().position(is_same).unwrap_or_else(|| {
                ranks.now.push(AccessRank { entry, precision, rows: 0, blocks: 0 });
                ranks.now.len() - 1
            });
            let (at_us, blocks) = (row.from_us.unwrap_or_default(), i64::from(row.effect.block));
            let start = RankChange { at_us, rank, rows: 1, blocks };
            if row.has_started(now_us) {
                start.apply(&mut ranks.now);
            } else {
                ranks.later.push(start);
            }
            let end = row.until_us.map(|at_us| RankChange { at_us, rows: -1, blocks: -blocks, ..start });
            ranks.later.extend(end);
        }
        ranks
    }

    /// Returns the first later time at which nothing blocks.
    fn unblocked_at_us(mut self) -> Option<u64> {
        self.later.sort_unstable_by_key(|change| change.at_us);
        let mut times = self.later.chunk_by(|one, next| one.at_us == next.at_us);
        let unblocked = times.find(|changes| {
            changes.iter().for_each(|change| change.apply(&mut self.now));
            let blocks =
                |rank: &AccessRank| rank.blocks > 0 && is_most_precise(&self.now, rank.entry, rank.precision);
            !self.now.iter().any(blocks)
        });
        unblocked?.first().map(|change| change.at_us)
    }
}

impl RankChange {
    fn apply(&self, ranks: &mut [AccessRank]) {
        ranks[self.rank].rows += self.rows;
        ranks[self.rank].blocks += self.blocks;
    }
}

/// `true` if no active exception for the entry is more precise.
fn is_most_precise(ranks: &[AccessRank], entry: usize, precision: u8) -> bool {
    let mut of_entry = ranks.iter().filter(|rank| rank.entry == entry && rank.rows > 0);
    of_entry.all(|rank| rank.precision <= precision)
}

/// Exceptions for one limit that apply now or later.
pub(super) struct RowsOfLimit<'m, 'x> {
    rows: SmallVec<[&'m MatchedRow<'x>; 4]>,
    now_us: u64,
}

impl<'m, 'x> RowsOfLimit<'m, 'x> {
    /// Selects the exceptions for the limit with this path and name.
    pub(super) fn new(matched: &'m [MatchedRow<'x>], (path, limit_name): (&str, &str), now_us: u64) -> Self {
        let is_for_limit = |matched: &&MatchedRow<'_>| match matched.row {
            AnyRow::Full(row) => row.path.matches(path) && row.limit_name.matches(limit_name),
            AnyRow::Tier(_) => true,
        };
        Self { rows: matched.iter().filter(is_for_limit).collect(), now_us }
    }

    pub(super) fn block(&self) -> Option<Block<'x>> {
        let ranks = self.ranks();
        let row = self.access(&ranks, |effect| effect.block)?;
        Some(Block { row, until_us: ranks.unblocked_at_us() })
    }

    /// Picks the exception that `is_wanted` selects among those that block or exempt. For one entry, the most precise
    /// value wins: an exempt office may be part of a blocked network.
    fn access(
        &self,
        ranks: &AccessRanks,
        is_wanted: impl Fn(&Effect) -> bool,
    ) -> Option<&'x Arc<ExceptionRow>> {
        let counting = self.access_rows().filter(|(place, row)| {
            let is_active = row.has_started(self.now_us);
            is_active && is_wanted(&row.effect) && is_most_precise(&ranks.now, place.entry, place.precision)
        });
        counting.max_by_key(|(place, row)| (row.names_limits(), *place)).map(|(_, row)| row)
    }

    fn ranks(&self) -> AccessRanks {
        AccessRanks::new(self.access_rows(), self.now_us)
    }

    /// Returns the exceptions with `block` or `exempt` that apply now or later.
    fn access_rows(&self) -> impl Iterator<Item = (Place, &'x Arc<ExceptionRow>)> {
        self.full_rows().filter(|(_, row)| row.effect.block || row.effect.exempt)
    }

    fn full_rows(&self) -> impl Iterator<Item = (Place, &'x Arc<ExceptionRow>)> {
        self.rows.iter().filter_map(|matched| match matched.row {
            AnyRow::Full(row) => Some((matched.place, row)),
            AnyRow::Tier(_) => None,
        })
    }

    fn active_rows(&self) -> impl Iterator<Item = (Place, &'x Arc<ExceptionRow>)> {
        self.full_rows().filter(|(_, row)| row.has_started(self.now_us))
    }

    /// The winning value of one column, with its exception.
    fn column<T>(&self, value: impl Fn(&'x ExceptionRow) -> Option<T>) -> Option<(T, &'x Arc<ExceptionRow>)> {
        let set = self.active_rows().filter_map(|(place, row)| Some((value(row)?, place, row)));
        set.max_by_key(|(_, place, row)| (row.names_limits(), *place)).map(|(value, _, row)| (value, row))
    }

    /// The winning tier.
    fn tier(&self) -> Option<(&'x Arc<str>, ChangedBy)> {
        let tiers = self.rows.iter().filter_map(|matched| match matched.row {
            AnyRow::Full(row) if row.has_started(self.now_us) => {
                let by = || ChangedBy::Row(Arc::clone(row));
                Some(((row.names_limits(), matched.place), row.effect.tier.as_ref()?, by()))
            }
            AnyRow::Full(_) => None,
            AnyRow::Tier(tier) => Some(((false, matched.place), &tier.tier, ChangedBy::Tier(tier.clone()))),
        });
        tiers.min_by_key(|(order, ..)| Reverse(*order)).map(|(_, tier, by)| (tier, by))
    }
}

/// Units on top of a limit.
struct Grant {
    units: u64,
    /// `None`: the limit lacks a window that ends.
    until_us: Option<u64>,
}

impl Grant {
    /// `None` if the exception grants nothing, or its window is over.
    fn new(row: &ExceptionRow, limit: &Limit, now_us: u64) -> Option<Self> {
        let (units, from_us) = (row.effect.add?, row.from_us?);
        let Some((_, end_us)) = limit.window_at(from_us) else { return Some(Self { units, until_us: None }) };
        let until_us = Some(row.until_us.unwrap_or(end_us).min(end_us));
        (now_us < end_us).then_some(Self { units, until_us })
    }
}

/// Applies `rows`, and the tier of an entry of the request, to `limit`.
pub(super) fn changed(limit: &Arc<Limit>, rows: &RowsOfLimit<'_, '_>, entry_tier: Option<&str>) -> Changed {
    if let Some(block) = rows.block() {
        return block.apply_to(limit);
    }
    if let Some(row) = rows.access(&rows.ranks(), |effect| effect.exempt) {
        return Changed::whole(limit.as_exempt(), Change::Exempt, row);
    }
    let mut changed = Changed { limit: Arc::clone(limit), steps: SmallVec::new() };
    if let Some((number, row)) = rows.column(|row| row.effect.limit) {
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
    if let Some((multiplier, row)) = rows.column(|row| row.effect.multiplier) {
        let number = limit.spec.at_least_reserved(multiplier.times(changed.limit.spec.requests_per_unit));
        changed.set_number(number, limit, Change::Multiplied(multiplier, number), row);
    }
    if let Some((grant, row)) = rows.column(|row| Grant::new(row, &changed.limit, rows.now_us)) {
        changed.add_grant(&grant, limit, row);
    }
    if let Some((shadow, row)) = rows.column(|row| row.effect.shadow_mode)
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

    fn add_grant(&mut self, grant: &Grant, rule: &Limit, row: &Arc<ExceptionRow>) {
        let Grant { units, until_us: Some(until_us) } = *grant else {
            let unfit = if self.limit.spec.unlimited { Unfit::Unlimited } else { Unfit::NoWindow };
            let by = ChangedBy::Row(Arc::clone(row));
            self.steps.push(DerivationStep { change: Change::Unfit(unfit), by });
            return;
        };
        let sum = self.limit.spec.requests_per_unit.saturating_add(units).min(MAX_LIMIT);
        let number = rule.spec.at_least_reserved(sum);
        self.set_number(number, rule, Change::Added { units, number, until_us }, row);
    }

    fn set_number(&mut self, number: u64, rule: &Limit, change: Change, row: &Arc<ExceptionRow>) {
        let changed = match self.limit.spec.unlimited {
            true => Err(Unfit::Unlimited),
            false => self.limit.with_number(number, rule).map_err(Unfit::from),
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
