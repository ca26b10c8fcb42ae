//! What settles count, for each limit with `settle`: the results, and the units that were estimated and those of the
//! real cost.

use engine::{Settle, SettleResult};

use super::series::Count;

/// The numbers of the limits with the same labels.
#[derive(Debug, Default)]
pub(super) struct SettleCounts {
    charged: Count,
    returned: Count,
    kept: Count,
    unreadable: Count,
    lost: Count,
    estimated: Count,
    actual: Count,
}

impl SettleCounts {
    /// Counts a settle. Its units are counted if both numbers are known, and booked.
    pub(super) fn record(&self, settle: &Settle) {
        self.count(settle.result).add(1);
        if let (Some(estimated), true) = (settle.estimated, settle.result != SettleResult::Lost) {
            self.estimated.add(estimated);
            self.actual.add(settle.actual);
        }
    }

    /// Counts a settle without an answer.
    pub(super) fn record_lost(&self) {
        self.lost.add(1);
    }

    fn count(&self, result: SettleResult) -> &Count {
        match result {
            SettleResult::Charged => &self.charged,
            SettleResult::Returned => &self.returned,
            SettleResult::Kept => &self.kept,
            SettleResult::Unreadable => &self.unreadable,
            SettleResult::Lost => &self.lost,
        }
    }

    /// Whether the limits have settled.
    pub(super) fn is_used(&self) -> bool {
        self.results().iter().any(|&(_, count)| count > 0)
    }

    pub(super) fn results(&self) -> [(&'static str, u64); 5] {
        [
            ("charged", self.charged.get()),
            ("returned", self.returned.get()),
            ("kept", self.kept.get()),
            ("unreadable", self.unreadable.get()),
            ("lost", self.lost.get()),
        ]
    }

    pub(super) fn units(&self) -> [(&'static str, u64); 2] {
        [("estimated", self.estimated.get()), ("actual", self.actual.get())]
    }
}
