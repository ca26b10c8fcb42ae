//! What a request asks of one limit, in units.

/// One above the largest limit there can be, so that a saturated cost still never fits.
const CEILING: u64 = 1 << 32;

/// Units to take (positive), to give back (negative), or none: a peek, which only asks.
///
/// Range: -2^32 ..= 2^32. Larger amounts saturate; since no limit exceeds 2^32 - 1, a saturated cost is refused
/// exactly where the true one would be. A refund of 0, as a taking and a refund of as much come to, changes nothing
/// and asks nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    units: i64,
    is_peek: bool,
}

impl Cost {
    /// Asks whether one unit would fit and changes nothing.
    pub const PEEK: Self = Self { units: 0, is_peek: true };

    /// A cost of `units`; 0 is [`Cost::PEEK`].
    #[must_use]
    pub fn take(units: u64) -> Self {
        Self { units: units.min(CEILING).cast_signed(), is_peek: units == 0 }
    }

    /// Gives `units` back.
    #[must_use]
    pub fn refund(units: u64) -> Self {
        Self { units: -units.min(CEILING).cast_signed(), is_peek: false }
    }

    /// The signed number of units.
    #[must_use]
    pub fn units(self) -> i64 {
        self.units
    }

    /// Units taken, 0 unless this takes any.
    #[must_use]
    pub fn taken(self) -> u64 {
        self.units.max(0).unsigned_abs()
    }

    /// Units that must be free for this cost to fit: a peek asks for one, a refund for none.
    #[must_use]
    pub fn needed(self) -> u64 {
        if self.is_peek { 1 } else { self.taken() }
    }

    /// Units given back, 0 unless this is a refund.
    #[must_use]
    pub fn refunded(self) -> u64 {
        self.units.min(0).unsigned_abs()
    }

    /// Whether this only asks.
    #[must_use]
    pub fn is_peek(self) -> bool {
        self.is_peek
    }

    /// Whether units are given back, be it 0 of them: that always fits.
    #[must_use]
    pub fn is_refund(self) -> bool {
        self.units <= 0 && !self.is_peek
    }

    /// Whether a counter would be changed.
    #[must_use]
    pub fn changes(self) -> bool {
        self.units != 0
    }

    /// The cost of both together: two descriptors of one request that meet on one counter.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let ceiling = CEILING.cast_signed();
        let units = (self.units + other.units).clamp(-ceiling, ceiling);
        // A peek beside a change is answered by what becomes of the change.
        let is_peek = units == 0 && (self.is_peek || other.is_peek);
        Self { units, is_peek }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saturated_cost_is_above_every_limit() {
        assert!(Cost::take(u64::MAX).needed() > u64::from(u32::MAX));
        assert_eq!(Cost::take(u64::MAX).and(Cost::take(1)), Cost::take(u64::MAX));
        assert_eq!(Cost::refund(u64::MAX).refunded(), CEILING);
    }

    #[test]
    fn what_cancels_out_is_no_peek() {
        let nothing = Cost::take(3).and(Cost::refund(3));
        assert_eq!((nothing, nothing.needed(), nothing.is_peek()), (Cost::refund(0), 0, false));
        assert_eq!(Cost::PEEK.and(Cost::PEEK), Cost::PEEK);
        assert_eq!(Cost::PEEK.and(Cost::take(2)), Cost::take(2));
        assert_eq!(Cost::PEEK.and(Cost::refund(2)), Cost::refund(2));
    }

    #[test]
    fn a_peek_needs_one_unit_and_a_refund_none() {
        assert_eq!((Cost::PEEK.needed(), Cost::refund(3).needed(), Cost::take(3).needed()), (1, 0, 3));
    }
}
