//! The undo of a grant: gives back what one grant took, but not the units that time has given back since. A settle
//! undoes what an estimate took too much, and a request over several slots of a cluster undoes its charges when it is
//! denied.
//!
//! A grant is known by an id, which the counter has after the grant. These functions do the same as mode UNDO of the
//! scripts of Redis.

use super::report::Attempt;
use crate::limit::cost::Grant;

/// An undo in a sliding log writes the entries after the grant again, if they are fewer than this number. Otherwise it
/// is not made, and the units stay recorded.
pub const UNDO_SEARCH: usize = 64;

/// Which units of which grant are given back, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The store's time, microseconds since the epoch.
    pub now_us: u64,
    pub units: u64,
    pub grant: Grant,
}

impl Undo {
    /// `None` if the cost is not of one grant (`Cost::undo`).
    pub(super) fn from_attempt(attempt: Attempt) -> Option<Self> {
        let Attempt { now_us, cost } = attempt;
        Some(Self { now_us, units: cost.refunded(), grant: cost.grant()? })
    }

    /// Time from the grant to the undo.
    pub(super) fn passed_us(self) -> u64 {
        self.now_us.saturating_sub(self.grant.id)
    }
}
