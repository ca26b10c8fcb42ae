//! Counts of the limits with the same labels: outcomes, answers by failure policy, announcements, the checks and
//! charges of limits that reserve, and settles.

use std::sync::atomic::{AtomicBool, Ordering};

use engine::algorithm::CounterReading;
use engine::{
    Announced, ChargedLimit, Decision, FailurePolicy, LimitSpec, Outcome, ReserveKind, Settle, SettleResult,
};

use super::series::Count;

/// With fewer charges, the ratio of checks to charges is meaningless.
const MIN_CHARGES: u64 = 1_000;

/// Counts of the limits with the same labels.
#[derive(Debug, Default)]
pub(super) struct LimitCounts {
    pub(super) ok: Count,
    pub(super) near_limit: Count,
    pub(super) over_limit: Count,
    pub(super) shadow: Count,
    pub(super) error: Count,
    /// In the order of [`FailurePolicy::ALL`].
    by_policy: [CountInUse; FailurePolicy::ALL.len()],
    /// In the order of [`Announced::ALL`].
    announced: [CountInUse; Announced::ALL.len()],
    /// In the order of [`ReserveKind::ALL`].
    reserved: [CountInUse; ReserveKind::ALL.len()],
    /// `true` once missing checks have been logged.
    is_told: AtomicBool,
}

/// A count whose series exists once the rules have such a limit.
#[derive(Debug, Default)]
struct CountInUse {
    is_in_use: AtomicBool,
    count: Count,
}

impl LimitCounts {
    /// Starts a failure policy's series.
    pub(super) fn use_policy(&self, policy: FailurePolicy) {
        self.by_policy[policy as usize].put_in_use();
    }

    /// Starts the series that a limit of this kind has.
    pub(super) fn use_spec(&self, spec: &LimitSpec) {
        if spec.is_announced() {
            self.announced.iter().for_each(CountInUse::put_in_use);
        }
        if spec.reserve.is_some() {
            self.reserved.iter().for_each(CountInUse::put_in_use);
        }
    }

    pub(super) fn record_policy(&self, policy: FailurePolicy) {
        self.by_policy[policy as usize].count.add(1);
    }

    pub(super) fn record_announced(&self, announced: Announced) {
        self.announced[announced as usize].count.add(1);
    }

    /// Counts a check or a charge. Returns `true` once: when the charges exceed twice the checks. Each charge without a
    /// check returns reserved units that no check took, so the limit does not hold.
    pub(super) fn record_reserve(&self, kind: ReserveKind) -> bool {
        self.reserved[kind as usize].count.add(1);
        if kind == ReserveKind::Check {
            return false;
        }
        let [checks, charges] =
            [ReserveKind::Check, ReserveKind::Charge].map(|kind| self.reserved[kind as usize].count.get());
        let lacks_checks = charges >= MIN_CHARGES && charges > checks.saturating_mul(2);
        lacks_checks && !self.is_told.swap(true, Ordering::Relaxed)
    }

    /// `true` once the limits have been used.
    pub(super) fn is_used(&self) -> bool {
        self.outcomes().iter().any(|&(_, count)| count > 0)
    }

    pub(super) fn outcomes(&self) -> [(&'static str, u64); 5] {
        [
            ("ok", self.ok.get()),
            ("near_limit", self.near_limit.get()),
            ("over_limit", self.over_limit.get()),
            ("shadow", self.shadow.get()),
            ("error", self.error.get()),
        ]
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = (&'static str, u64)> {
        in_use(FailurePolicy::ALL.iter().map(|policy| policy.into_str()), &self.by_policy)
    }

    pub(super) fn announcements(&self) -> impl Iterator<Item = (&'static str, u64)> {
        in_use(Announced::ALL.iter().map(|announced| announced.into_str()), &self.announced)
    }

    pub(super) fn reserves(&self) -> impl Iterator<Item = (&'static str, u64)> {
        in_use(ReserveKind::ALL.iter().map(|kind| kind.into_str()), &self.reserved)
    }
}

impl CountInUse {
    fn put_in_use(&self) {
        self.is_in_use.store(true, Ordering::Relaxed);
    }
}

/// The counts that have a series.
fn in_use(
    names: impl Iterator<Item = &'static str>,
    counts: &[CountInUse],
) -> impl Iterator<Item = (&'static str, u64)> {
    let in_use = names.zip(counts).filter(|(_, counted)| counted.is_in_use.load(Ordering::Relaxed));
    in_use.map(|(name, counted)| (name, counted.count.get()))
}

/// Settles of the limits with the same labels.
#[derive(Debug, Default)]
pub(super) struct SettleCounts {
    /// In the order of [`SettleResult`].
    results: [Count; 5],
    /// Estimated and real cost.
    units: [Count; 2],
    /// Receipts given out.
    receipts: Count,
}

impl SettleCounts {
    /// Counts a receipt that the answer contains.
    pub(super) fn record_receipt(&self) {
        self.receipts.add(1);
    }

    /// Counts a settle; `None` if it was not answered. Its units are counted if both costs are known and it was
    /// recorded.
    pub(super) fn record(&self, settle: Option<&Settle>) {
        let result = settle.map_or(SettleResult::Lost, |settle| settle.result);
        self.results[result as usize].add(1);
        if let Some(&Settle { estimated: Some(estimated), actual, .. }) = settle
            && result != SettleResult::Lost
        {
            self.units[0].add(estimated);
            self.units[1].add(actual);
        }
    }

    /// `true` after the first receipt or settle.
    pub(super) fn is_used(&self) -> bool {
        self.receipts.get() > 0 || self.results.iter().any(|count| count.get() > 0)
    }

    pub(super) fn receipts(&self) -> u64 {
        self.receipts.get()
    }

    pub(super) fn results(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ["charged", "returned", "kept", "unreadable", "lost"];
        names.into_iter().zip(self.results.iter().map(Count::get))
    }

    pub(super) fn units(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ["estimated", "actual"].into_iter().zip(self.units.iter().map(Count::get))
    }
}

/// Changes of slots, in the order of [`SLOT_RESULTS`].
#[derive(Debug, Default)]
pub(super) struct SlotCounts([Count; SLOT_RESULTS.len()]);

const SLOT_RESULTS: [&str; 6] = ["taken", "renewed", "released", "kept", "lapsed", "refused"];

impl SlotCounts {
    /// Counts what a decided charge did to slots.
    pub(super) fn record(&self, decision: &Decision, charged: &ChargedLimit<'_>, outcome: &Outcome) {
        let [taken, renewed, released, kept, lapsed, refused] = &self.0;
        let result = match decision.settle(charged.index).map(|settle| settle.result) {
            Some(SettleResult::Lost) => return,
            Some(SettleResult::Returned) => released,
            Some(SettleResult::Kept | SettleResult::Charged | SettleResult::Unreadable) => kept,
            None if charged.cost.is_refund() => refused,
            None if decision.grant_in_receipt(charged).is_none() => return,
            None => {
                if let Some(CounterReading::Slots(slots)) =
                    outcome.decided_by.snapshot().map(|counter| counter.reading)
                {
                    lapsed.add(slots.removed);
                }
                if charged.cost.is_renewal() { renewed } else { taken }
            }
        };
        result.add(1);
    }

    /// `true` after the first change of a slot.
    pub(super) fn is_used(&self) -> bool {
        self.0.iter().any(|count| count.get() > 0)
    }

    pub(super) fn results(&self) -> impl Iterator<Item = (&'static str, u64)> {
        SLOT_RESULTS.into_iter().zip(self.0.iter().map(Count::get))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_charges_without_half_as_many_checks_are_told_once() {
        let told_at = |checks: u64, charges: u64| -> Vec<u64> {
            let counts = LimitCounts::default();
            assert!((0..checks).all(|_| !counts.record_reserve(ReserveKind::Check)));
            (1..=charges).filter(|_| counts.record_reserve(ReserveKind::Charge)).collect()
        };
        assert_eq!(told_at(0, 5_000), [1_000]);
        assert_eq!(told_at(499, 5_000), [1_000]);
        assert_eq!(told_at(500, 5_000), [1_001]);
        assert_eq!(told_at(1_000, 2_000), [] as [u64; 0]);
    }
}
