//! What is counted of the limits that answers announce, and of the limits that reserve; and the warning about callers
//! that charge without checks.

use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Announced, LimitSpec, ReserveKind};

use super::series::Count;

/// The share of checks and charges says nothing before this many charges.
const MIN_CHARGES: u64 = 1_000;

/// The announcements of the limits with the same labels.
#[derive(Debug, Default)]
pub(super) struct AnnounceCounts {
    /// Such a limit is, or was, announced.
    is_in_use: AtomicBool,
    near: Count,
    over: Count,
}

impl AnnounceCounts {
    pub(super) fn record(&self, announced: Announced) {
        self.count(announced).add(1);
    }

    /// The counts by state; none if no such limit is announced.
    pub(super) fn by_state(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let is_in_use = self.is_in_use.load(Ordering::Relaxed);
        let states = Announced::ALL.iter().filter(move |_| is_in_use);
        states.map(|&announced| (announced.name(), self.count(announced).get()))
    }

    fn count(&self, announced: Announced) -> &Count {
        match announced {
            Announced::Near => &self.near,
            Announced::Over => &self.over,
        }
    }
}

/// The checks and charges of the limits with the same labels.
#[derive(Debug, Default)]
pub(super) struct ReserveCounts {
    /// Such a limit reserves, or did.
    is_in_use: AtomicBool,
    checks: Count,
    charges: Count,
    is_told: AtomicBool,
}

impl ReserveCounts {
    /// Counts a check or a charge. Returns true once: when the charges are more than twice the checks. Each charge
    /// without a check gives reserved units back that no check took, so the limit does not hold.
    pub(super) fn record(&self, kind: ReserveKind) -> bool {
        self.count(kind).add(1);
        if kind == ReserveKind::Check {
            return false;
        }
        let (checks, charges) = (self.checks.get(), self.charges.get());
        let lacks_checks = charges >= MIN_CHARGES && charges > checks.saturating_mul(2);
        lacks_checks && !self.is_told.swap(true, Ordering::Relaxed)
    }

    /// The counts by kind; none if no such limit reserves.
    pub(super) fn by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let is_in_use = self.is_in_use.load(Ordering::Relaxed);
        let kinds = ReserveKind::ALL.iter().filter(move |_| is_in_use);
        kinds.map(|&kind| (kind.name(), self.count(kind).get()))
    }

    fn count(&self, kind: ReserveKind) -> &Count {
        match kind {
            ReserveKind::Check => &self.checks,
            ReserveKind::Charge => &self.charges,
        }
    }
}

/// Marks what the limit can be counted for.
pub(super) fn mark_in_use(spec: &LimitSpec, announced: &AnnounceCounts, reserved: &ReserveCounts) {
    if spec.is_announced() {
        announced.is_in_use.store(true, Ordering::Relaxed);
    }
    if spec.reserve.is_some() {
        reserved.is_in_use.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_charges_without_half_as_many_checks_are_told_once() {
        let told_at = |checks: u64, charges: u64| -> Vec<u64> {
            let counts = ReserveCounts::default();
            assert!((0..checks).all(|_| !counts.record(ReserveKind::Check)));
            (1..=charges).filter(|_| counts.record(ReserveKind::Charge)).collect()
        };
        assert_eq!(told_at(0, 5_000), [1_000]);
        assert_eq!(told_at(499, 5_000), [1_000]);
        assert_eq!(told_at(500, 5_000), [1_001]);
        assert_eq!(told_at(1_000, 2_000), [] as [u64; 0]);
    }
}
