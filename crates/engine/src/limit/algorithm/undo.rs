//! Undo returns what one grant took, minus the units that have come back with time since.
//!
//! Settling undoes the excess of an estimate; a cluster request over several slots undoes its charges if it is denied.
//! A grant is identified by an id read from the counter after it. The Redis scripts do the same in mode UNDO.

use super::attempt::{Attempt, Grant};

/// To undo a grant, a sliding log rewrites the entries after it. If there are this many or more, it does not, and the
/// units stay recorded.
pub const UNDO_SEARCH: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The store's time, microseconds since the epoch.
    pub now_us: u64,
    pub units: u64,
    pub grant: Grant,
}

impl Undo {
    /// `None` unless the cost is a `Cost::undo`.
    pub(super) fn from_attempt(attempt: Attempt) -> Option<Self> {
        let Attempt { now_us, cost } = attempt;
        Some(Self { now_us, units: cost.refunded(), grant: cost.grant()? })
    }

    pub(super) fn passed_us(self) -> u64 {
        self.now_us.saturating_sub(self.grant.id)
    }
}
