//! What a request asks of one limit, in units.

/// One above the largest limit there can be, so that a saturated cost still never fits.
const CEILING: u64 = 1 << 32;

/// Units to take (positive), to give back (negative), or none: a peek, which only asks.
///
/// Range: -2^32 ..= 2^32. Larger amounts saturate; since no limit exceeds 2^32 - 1, a saturated cost is refused
/// exactly where the true one would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost(i64);

impl Cost {
    /// Asks whether one unit would fit and changes nothing.
    pub const PEEK: Self = Self(0);

    /// A cost of `units`; 0 is [`Cost::PEEK`].
    #[must_use]
    pub fn take(units: u64) -> Self {
        Self(units.min(CEILING).cast_signed())
    }

    /// Gives `units` back; 0 is [`Cost::PEEK`].
    #[must_use]
    pub fn refund(units: u64) -> Self {
        Self(-units.min(CEILING).cast_signed())
    }

    /// The signed number of units.
    #[must_use]
    pub fn units(self) -> i64 {
        self.0
    }

    /// Units that must be free for this cost to fit: a peek asks for one, a refund for none.
    #[must_use]
    pub fn needed(self) -> u64 {
        if self.is_peek() { 1 } else { self.0.max(0).unsigned_abs() }
    }

    /// Units given back, 0 unless this is a refund.
    #[must_use]
    pub fn refunded(self) -> u64 {
        self.0.min(0).unsigned_abs()
    }

    /// Whether nothing is to be taken or given back.
    #[must_use]
    pub fn is_peek(self) -> bool {
        self.0 == 0
    }

    /// Whether units are given back.
    #[must_use]
    pub fn is_refund(self) -> bool {
        self.0 < 0
    }

    /// The cost of both together: two descriptors of one request that meet on one counter.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let ceiling = CEILING.cast_signed();
        Self((self.0 + other.0).clamp(-ceiling, ceiling))
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
    fn a_peek_needs_one_unit_and_a_refund_none() {
        assert_eq!((Cost::PEEK.needed(), Cost::refund(3).needed(), Cost::take(3).needed()), (1, 0, 3));
    }
}
