//! Input and output of kernels: a cost at a time, a verdict, and the numbers in answers.
//!
//! A cost is what a request takes from a counter, returns to it, or asks about it. `CounterView` computes the reports
//! of kernels without fixed windows. The bound on postpaid debt is here, too.

use std::num::NonZeroU32;

/// Latest time for which decisions are exact, in the year 2112.
pub const MAX_TIME_US: u64 = (1 << 52) - 1;

/// A cost at one time, for a kernel to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The store's time, microseconds since the epoch, at most [`MAX_TIME_US`].
    pub now_us: u64,
    pub cost: Cost,
}

/// Most units of a cost or count: up to this number, the doubles that Redis uses hold every whole number. It is above
/// every limit, so a saturated cost never fits.
pub(crate) const MAX_UNITS: u64 = (1 << 53) - 1;

/// Units to take (positive), units to return (negative), or a peek, which changes nothing.
///
/// At most 2^53 - 1 units; larger amounts saturate. No limit exceeds 2^52, so a saturated cost is denied exactly when
/// the true cost would be. A refund of 0 (a cost plus a refund of the same size) always fits and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    units: i64,
    kind: CostKind,
}

/// Tells plain costs, peeks, undos and slots apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CostKind {
    /// Units to take or to return.
    Plain,
    /// Returns units of one grant: the fields of [`Grant`], which would be larger as a field.
    Undo { id: u64, limit: Option<NonZeroU32> },
    /// Does one unit fit?
    OneUnit,
    /// Is the counter within its limit?
    NoDebt,
    /// Adds one slot, or keeps it if it is open.
    Slot { id: u64, is_renewal: bool },
}

/// Recorded units, as an undo identifies them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Identifies the grant in its counter; see [`Kernel::grant`](crate::algorithm::Kernel::grant).
    pub id: u64,
    /// The limit of the kernel that recorded the units, if it determines how long they last: GCRA units drain at its
    /// rate. `None` for other kernels, and if the limit is unknown; the current limit then applies.
    pub limit: Option<NonZeroU32>,
}

impl Cost {
    /// Asks if one unit would fit; changes nothing.
    pub const PEEK: Self = Self { units: 0, kind: CostKind::OneUnit };

    /// Asks if the counter is within its limit, so it fits even if the limit is exactly exhausted; changes nothing.
    /// Only for fixed windows.
    pub const DEBT_PEEK: Self = Self { units: 0, kind: CostKind::NoDebt };

    /// 0 units make a [`Cost::PEEK`].
    pub fn take(units: u64) -> Self {
        let kind = if units == 0 { CostKind::OneUnit } else { CostKind::Plain };
        Self { units: units.min(MAX_UNITS).cast_signed(), kind }
    }

    pub fn refund(units: u64) -> Self {
        Self { units: -units.min(MAX_UNITS).cast_signed(), kind: CostKind::Plain }
    }

    /// Returns `units` of one grant, minus those that have come back with time since the grant.
    pub fn undo(units: u64, Grant { id, limit }: Grant) -> Self {
        Self { kind: CostKind::Undo { id, limit }, ..Self::refund(units) }
    }

    /// Adds the slot with this id, below 2^53: one unit of a concurrency limit.
    pub fn slot(id: u64) -> Self {
        Self { units: 1, kind: CostKind::Slot { id, is_renewal: false } }
    }

    /// Adds an earlier request's slot again. Its holder keeps it if this fails, so it is never undone.
    pub fn renewal(id: u64) -> Self {
        Self { units: 1, kind: CostKind::Slot { id, is_renewal: true } }
    }

    /// `true` for a [`Cost::renewal`].
    pub fn is_renewal(self) -> bool {
        matches!(self.kind, CostKind::Slot { is_renewal: true, .. })
    }

    /// Identifies the slot to add or release. 0 for a cost without one.
    pub fn slot_id(self) -> u64 {
        match self.kind {
            CostKind::Slot { id, .. } | CostKind::Undo { id, .. } => id,
            CostKind::Plain | CostKind::OneUnit | CostKind::NoDebt => 0,
        }
    }

    /// The grant to undo; `None` unless this is a [`Cost::undo`].
    pub fn grant(self) -> Option<Grant> {
        if let CostKind::Undo { id, limit } = self.kind { Some(Grant { id, limit }) } else { None }
    }

    /// Positive to take, negative to return.
    pub fn units(self) -> i64 {
        self.units
    }

    /// Units taken; 0 for a refund or peek.
    pub fn taken(self) -> u64 {
        self.units.max(0).unsigned_abs()
    }

    /// Units that must be free for the cost to fit: 1 for a peek, 0 for a refund or [`Cost::DEBT_PEEK`].
    pub fn needed(self) -> u64 {
        match self.kind {
            CostKind::OneUnit => 1,
            CostKind::NoDebt => 0,
            CostKind::Plain | CostKind::Undo { .. } | CostKind::Slot { .. } => self.taken(),
        }
    }

    /// Units returned; 0 unless this is a refund.
    pub fn refunded(self) -> u64 {
        self.units.min(0).unsigned_abs()
    }

    pub fn is_peek(self) -> bool {
        matches!(self.kind, CostKind::OneUnit | CostKind::NoDebt)
    }

    fn is_slot(self) -> bool {
        matches!(self.kind, CostKind::Slot { .. })
    }

    /// `true` if the cost returns units, possibly 0. A refund always fits.
    pub fn is_refund(self) -> bool {
        self.units <= 0 && !self.is_peek()
    }

    /// `true` if recording the cost changes a counter.
    pub fn changes_counter(self) -> bool {
        self.units != 0
    }

    /// Adds two costs: two descriptors of one request may share a counter. They share a slot.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        if let Some(slot) = [self, other].into_iter().find(|cost| cost.is_slot()) {
            return slot;
        }
        let most = MAX_UNITS.cast_signed();
        let units = (self.units + other.units).clamp(-most, most);
        // A peek plus a change is the change.
        let kind = match (units, self.kind) {
            (0, CostKind::Plain | CostKind::Undo { .. } | CostKind::Slot { .. }) => other.kind,
            (0, kind) => kind,
            _ => CostKind::Plain,
        };
        Self { units, kind }
    }
}

/// Whether a cost fits one limit, regardless of the request's other limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// For a peek, at least one unit is left. A refund always fits.
    Fits,
    Over,
}

/// When the same cost would fit if nothing else happens. Ordered by wait; `Never` is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryAfter {
    Now,
    /// Exact wait in microseconds, at least 1.
    In(u64),
    /// The cost exceeds the largest cost that the limit admits.
    Never,
}

impl RetryAfter {
    /// The wait in microseconds; 0 for now, `None` for never.
    pub fn us(self) -> Option<u64> {
        match self {
            Self::Now => Some(0),
            Self::In(us) => Some(us),
            Self::Never => None,
        }
    }
}

/// The state of one limit after a decision. Durations are exact microseconds from the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Units that could still be taken at this instant.
    pub remaining: u64,
    /// When the same cost would fit.
    pub retry_after: RetryAfter,
    /// Time until the counter equals an unused one, for every kernel and verdict.
    pub reset_after_us: u64,
    /// Time until `remaining` grows; 0 if all units remain.
    pub next_after_us: u64,
    /// Time that an admitted hit has to wait in a queue; 0 for all other kernels.
    pub delay_us: u64,
    /// The wire field `duration_until_reset`. Fixed window: time until the window ends, even if it is unused. Other
    /// kernels: `retry_after` if over, else `reset_after_us`. If the cost never fits: the longest wait that the kernel
    /// reports for any cost.
    pub until_reset_us: u64,
    /// Postpaid units that a fixed window recorded beyond its limit; 0 for all other kernels.
    pub over_by: u64,
}

impl Report {
    /// Reports an unused counter, or one whose state is unknown.
    pub fn unused(remaining: u64) -> Self {
        Self {
            remaining,
            retry_after: RetryAfter::Now,
            reset_after_us: 0,
            next_after_us: 0,
            delay_us: 0,
            until_reset_us: 0,
            over_by: 0,
        }
    }
}

/// Most units that a postpaid counter records: its limit plus a debt of the same size. Fixed and calendar windows
/// record up to [`MAX_UNITS`].
pub(super) fn max_recorded(limit: u64) -> u64 {
    2 * limit
}

/// Returns the count after recording `cost`, kept between 0 and [`max_recorded`].
pub(super) fn apply_clamped(count: u64, cost: Cost, limit: u64) -> u64 {
    if cost.is_refund() {
        return count.saturating_sub(cost.refunded());
    }
    // `max(count)`: recording a cost must not lower a count, even if it is above the bound.
    (count + cost.units().unsigned_abs()).min(max_recorded(limit)).max(count)
}

/// A counter at one instant.
pub(super) struct CounterView<W, L> {
    /// The largest cost that can ever fit.
    pub max_cost: u64,
    pub remaining: u64,
    /// Wait until the counter equals an unused one.
    pub reset_after_us: u64,
    /// Shortest wait after which some units fit. Called only with more than `remaining` and at most `max_cost`.
    pub wait_us: W,
    /// The longest wait of a cost that fits an unused counter, assuming no debt.
    pub longest_wait_us: L,
}

impl<W: Fn(u64) -> u64, L: Fn() -> u64> CounterView<W, L> {
    pub fn report(self, cost: Cost, verdict: Verdict) -> Report {
        let Self { max_cost, remaining, reset_after_us, wait_us, longest_wait_us } = self;
        let retry_after = match verdict {
            Verdict::Fits => RetryAfter::Now,
            Verdict::Over if cost.needed() > max_cost => RetryAfter::Never,
            Verdict::Over => RetryAfter::In(wait_us(cost.needed())),
        };
        let next_after_us = if remaining >= max_cost { 0 } else { wait_us(remaining + 1) };
        let until_reset_us = match retry_after {
            RetryAfter::In(us) => us,
            RetryAfter::Now => reset_after_us,
            // At least the wait for any smaller cost: callers that cannot read "never" would otherwise retry
            // immediately.
            RetryAfter::Never => reset_after_us.max(longest_wait_us()),
        };
        Report {
            remaining,
            retry_after,
            reset_after_us,
            next_after_us,
            delay_us: 0,
            until_reset_us,
            over_by: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::spec::Algorithm;

    #[test]
    fn a_saturated_cost_is_above_every_limit() {
        assert!(Algorithm::ALL.iter().all(|algorithm| Cost::take(u64::MAX).needed() > algorithm.max_limit()));
        assert_eq!(Cost::take(u64::MAX).plus(Cost::take(1)), Cost::take(u64::MAX));
        assert_eq!(Cost::refund(u64::MAX).refunded(), MAX_UNITS);
    }

    #[test]
    fn costs_that_cancel_out_are_no_peek() {
        let nothing = Cost::take(3).plus(Cost::refund(3));
        assert_eq!((nothing, nothing.needed(), nothing.is_peek()), (Cost::refund(0), 0, false));
        assert_eq!(nothing.plus(Cost::PEEK), Cost::PEEK);
        assert_eq!(Cost::PEEK.plus(Cost::PEEK), Cost::PEEK);
        assert_eq!(Cost::PEEK.plus(Cost::take(2)), Cost::take(2));
        assert_eq!(Cost::PEEK.plus(Cost::refund(2)), Cost::refund(2));
    }

    #[test]
    fn a_peek_needs_one_unit_and_a_refund_none() {
        assert_eq!((Cost::PEEK.needed(), Cost::refund(3).needed(), Cost::take(3).needed()), (1, 0, 3));
        assert_eq!((Cost::DEBT_PEEK.needed(), Cost::DEBT_PEEK.is_refund()), (0, false));
    }
}
