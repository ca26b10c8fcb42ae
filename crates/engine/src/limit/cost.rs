//! What a request takes from a counter, returns to it, or asks about it.

use std::num::NonZeroU32;

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
    question: Question,
}

/// What a peek asks, or which grant an undo returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Neither a peek nor an undo.
    None,
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
    pub const PEEK: Self = Self { units: 0, question: Question::OneUnit };

    /// Asks if the counter is within its limit, so it fits even if the limit is exactly exhausted; changes nothing.
    /// Only for fixed windows.
    pub const DEBT_PEEK: Self = Self { units: 0, question: Question::NoDebt };

    /// 0 units make a [`Cost::PEEK`].
    pub fn take(units: u64) -> Self {
        let question = if units == 0 { Question::OneUnit } else { Question::None };
        Self { units: units.min(MAX_UNITS).cast_signed(), question }
    }

    pub fn refund(units: u64) -> Self {
        Self { units: -units.min(MAX_UNITS).cast_signed(), question: Question::None }
    }

    /// Returns `units` of one grant, minus those that have come back with time since the grant.
    pub fn undo(units: u64, Grant { id, limit }: Grant) -> Self {
        Self { question: Question::Undo { id, limit }, ..Self::refund(units) }
    }

    /// Adds the slot with this id, below 2^53: one unit of a concurrency limit.
    pub fn slot(id: u64) -> Self {
        Self { units: 1, question: Question::Slot { id, is_renewal: false } }
    }

    /// Adds an earlier request's slot again. Its holder keeps it if this fails, so it is never undone.
    pub fn renewal(id: u64) -> Self {
        Self { units: 1, question: Question::Slot { id, is_renewal: true } }
    }

    /// `true` for a [`Cost::renewal`].
    pub fn is_renewal(self) -> bool {
        matches!(self.question, Question::Slot { is_renewal: true, .. })
    }

    /// Identifies the slot to add or release. 0 for a cost without one.
    pub fn slot_id(self) -> u64 {
        match self.question {
            Question::Slot { id, .. } | Question::Undo { id, .. } => id,
            Question::None | Question::OneUnit | Question::NoDebt => 0,
        }
    }

    /// The grant to undo; `None` unless this is a [`Cost::undo`].
    pub fn grant(self) -> Option<Grant> {
        if let Question::Undo { id, limit } = self.question { Some(Grant { id, limit }) } else { None }
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
        match self.question {
            Question::OneUnit => 1,
            Question::NoDebt => 0,
            Question::None | Question::Undo { .. } | Question::Slot { .. } => self.taken(),
        }
    }

    /// Units returned; 0 unless this is a refund.
    pub fn refunded(self) -> u64 {
        self.units.min(0).unsigned_abs()
    }

    pub fn is_peek(self) -> bool {
        matches!(self.question, Question::OneUnit | Question::NoDebt)
    }

    fn is_slot(self) -> bool {
        matches!(self.question, Question::Slot { .. })
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
        let question = match (units, self.question) {
            (0, Question::None | Question::Undo { .. } | Question::Slot { .. }) => other.question,
            (0, question) => question,
            _ => Question::None,
        };
        Self { units, question }
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
