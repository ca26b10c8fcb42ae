//! `reserve: N`, for callers that check before a request and charge its cost after it, and that cannot return a
//! receipt. The check takes N units, so that concurrent requests do not pass together. The charge after it books the
//! difference to the real cost.
//!
//! Nothing ties a charge to its check. So the limit is approximate: a caller that charges without checks is given units
//! back, and is never limited.

use strum::{IntoStaticStr, VariantArray};

use crate::limit::algorithm::Pacing;
use crate::limit::role::Role;
use crate::limit::{Algorithm, Charging, LimitSpec};
use crate::request::plan::charge::Charge;
use crate::request::{Cost, Descriptor};

/// What a descriptor does to a limit with `reserve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ReserveKind {
    /// Its hits are present and 0: it takes the reserved units if they fit.
    Check,
    /// Its hits are the cost of a request that a check admitted: it books the difference, and denies nothing.
    Charge,
}

impl ReserveKind {
    /// Every kind.
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Why a limit cannot have `reserve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    #[error("reserve must be at least 1; leave it out to reserve nothing")]
    Zero,
    /// A postpaid check would be recorded although it is denied.
    #[error("reserve needs charging: prepaid, but this limit is postpaid")]
    Postpaid,
    /// The caller was told a delay for the reserved units already.
    #[error("reserve does not work with mode: queue, which answers with the delay of the reserved units")]
    Queue,
    /// A receipt says how much was taken, so nothing has to be reserved.
    #[error("reserve does not work with settle: a caller that returns receipts needs no reserve")]
    Settle,
    #[error(
        "reserve is {reserve}, but the limit never admits more than {capacity} at once: every check is denied"
    )]
    AboveLimit { reserve: u64, capacity: u64 },
}

impl LimitSpec {
    /// Checks that the limit can have the `reserve` that it has.
    ///
    /// # Errors
    /// [`ReserveError`] if it cannot.
    pub fn check_reserve(&self) -> Result<(), ReserveError> {
        let Some(reserve) = self.reserve else { return Ok(()) };
        let capacity = self.capacity();
        if reserve == 0 {
            return Err(ReserveError::Zero);
        }
        if self.charging == Charging::Postpaid {
            return Err(ReserveError::Postpaid);
        }
        if self.algorithm == Algorithm::LeakyBucket && self.pacing == Pacing::Queue {
            return Err(ReserveError::Queue);
        }
        if self.settle {
            return Err(ReserveError::Settle);
        }
        if reserve > capacity {
            return Err(ReserveError::AboveLimit { reserve, capacity });
        }
        Ok(())
    }

    /// The number that counts where a tier or a row of the exceptions says `number`: at least the reserved units, so
    /// that every check takes the same units, and a charge gives back at most what its check took, whatever the number
    /// was meanwhile. A smaller number would admit no more: one check uses it up. A bucket has a burst for this, and
    /// its rate stays what the number says. 0 blocks in any case.
    pub(crate) fn at_least_reserved(&self, number: u64) -> u64 {
        match self.reserve {
            Some(reserve) if number > 0 && !self.algorithm.has_burst() => number.max(reserve),
            _ => number,
        }
    }
}

/// What `descriptor` charges to a limit that reserves `units`, where a limit without `reserve` would be charged
/// `usual`. The kind is `None` for a descriptor that is charged as usual: without hits of its own, a refund, or a whole
/// cost.
///
/// At most as many units are reserved as the kernel admits at once: an exception can make the burst of a bucket smaller
/// than its `reserve`, and checks must still be able to fit.
pub(crate) fn reserved(usual: Charge, units: u64, descriptor: &Descriptor) -> (Charge, Option<ReserveKind>) {
    let is_usual = descriptor.is_refund || descriptor.is_whole_cost;
    let Some(hits) = descriptor.hits.filter(|_| !is_usual) else {
        return (usual, None);
    };
    let units = units.min(usual.kernel.max_cost());
    if hits == 0 {
        return (Charge { cost: Cost::take(units), ..usual }, Some(ReserveKind::Check));
    }
    let cost = if hits > units { Cost::take(hits - units) } else { Cost::refund(units - hits) };
    let charge = Charge { cost, charging: Charging::Postpaid, role: Role::Booked, ..usual };
    (charge, Some(ReserveKind::Charge))
}
