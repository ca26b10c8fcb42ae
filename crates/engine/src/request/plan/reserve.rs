//! `reserve: N`, for callers that check before a request and charge its cost afterwards, without a receipt.
//!
//! The check takes N units, so that concurrent requests do not all pass; the later charge books the difference to the
//! real cost. Nothing links the two, so the limit is approximate: a caller that charges without checks gets units back
//! and is never limited.

use strum::{IntoStaticStr, VariantArray};

use crate::limit::algorithm::Cost;
use crate::limit::spec::Charging;
use crate::request::Descriptor;
use crate::request::plan::charge::{Charge, Role};

/// How a descriptor uses a limit with `reserve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum ReserveKind {
    /// Its hits are an explicit 0: it takes the reserved units if they fit.
    Check,
    /// Its hits are the cost of a request that a check admitted: it books the difference, and denies nothing.
    Charge,
}

impl ReserveKind {
    pub const ALL: &'static [Self] = <Self as VariantArray>::VARIANTS;
}

/// Returns what `descriptor` charges to a limit that reserves `units`; `usual` is the charge without `reserve`. The
/// kind is `None` if the usual charge applies: to a descriptor without its own hits, a refund, a whole cost, or a limit
/// without a counter, which denies everything.
///
/// Reserves at most what the kernel admits at one instant: an exception can make a bucket's burst smaller than its
/// `reserve`, and checks must still be able to fit.
pub(crate) fn reserved(usual: Charge, units: u64, descriptor: &Descriptor) -> (Charge, Option<ReserveKind>) {
    let is_usual = descriptor.is_refund || descriptor.is_whole_cost || !usual.kernel.has_counter();
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
