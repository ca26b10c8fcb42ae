//! `reserve: N`, for callers that check before a request and charge its cost after it, and that cannot return a
//! receipt. The check takes N units, so that concurrent requests do not pass together. The charge after it books the
//! difference to the real cost.
//!
//! Nothing ties a charge to its check. So the limit is approximate: a caller that charges without checks is given units
//! back, and is never limited.

use strum::{IntoStaticStr, VariantArray};

use crate::limit::cost::Cost;
use crate::limit::role::Role;
use crate::limit::spec::Charging;
use crate::request::Descriptor;
use crate::request::plan::charge::Charge;

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
