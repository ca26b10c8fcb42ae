//! What settles count, for each limit with `settle`: the results, and the units that were estimated and those of the
//! real cost.

use std::sync::Arc;

use engine::{Settle, SettleResult};

use super::limit_families::LimitLabels;
use super::series::{Count, Exposition};

const SETTLES: &str = "ratelimitd_settles_total";

const UNITS: &str = "ratelimitd_settle_units_total";

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

    fn results(&self) -> [(&'static str, u64); 5] {
        [
            ("charged", self.charged.get()),
            ("returned", self.returned.get()),
            ("kept", self.kept.get()),
            ("unreadable", self.unreadable.get()),
            ("lost", self.lost.get()),
        ]
    }

    fn units(&self) -> [(&'static str, u64); 2] {
        [("estimated", self.estimated.get()), ("actual", self.actual.get())]
    }
}

/// Writes the series of the limits that have settled.
pub(super) fn write(exposition: &mut Exposition<'_>, limits: &[(LimitLabels, Arc<SettleCounts>)]) {
    let used = || limits.iter().filter(|(_, counts)| counts.results().iter().any(|&(_, count)| count > 0));
    exposition.family(SETTLES, "counter", "Receipts that came back, by limit and by what was booked");
    for (limit, counts) in used() {
        for (result, count) in counts.results() {
            exposition.sample(SETTLES, &limit.labels(("result", result)), count);
        }
    }
    exposition.family(
        UNITS,
        "counter",
        "Units of the receipts that came back: the estimate, and the real cost",
    );
    for (limit, counts) in used() {
        for (kind, count) in counts.units() {
            exposition.sample(UNITS, &limit.labels(("kind", kind)), count);
        }
    }
}
