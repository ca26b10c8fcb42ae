//! Laws of settles: estimates are charged, and settled later by the real cost, which counts at the time of its
//! estimate.

use std::ops::RangeInclusive;

use proptest::prelude::*;

use super::testing::{Counter, T0, calendar, small_kernel, windows_touched};
use crate::limit::algorithm::{
    Attempt, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow,
};
use crate::{Charging, Cost, Grant, Pacing, Verdict};

#[derive(Clone, Copy, Debug)]
pub(super) struct Admitted {
    pub at_us: u64,
    pub estimated: u64,
    pub actual: u64,
    grant: Grant,
}

/// How a story returns the excess of an estimate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Return {
    Receipt,
    /// By negative hits, which name no grant.
    Refund,
}

impl Counter {
    /// Takes an estimate; `None` if it is denied.
    pub(super) fn estimate(&mut self, at_us: u64, estimated: u64, actual: u64) -> Option<Admitted> {
        if self.take(at_us, estimated).0 == Verdict::Over {
            return None;
        }
        let attempt = Attempt { now_us: at_us, cost: Cost::take(estimated) };
        let reading = self.kernel.reading(self.state.as_ref(), attempt);
        let grant = self.kernel.grant(&reading, estimated).expect("a kernel with a counter");
        Some(Admitted { at_us, estimated, actual, grant })
    }

    pub(super) fn settle(&mut self, now_us: u64, admitted: Admitted, how: Return) {
        let units = admitted.estimated - admitted.actual;
        let cost =
            if how == Return::Receipt { Cost::undo(units, admitted.grant) } else { Cost::refund(units) };
        self.decide(now_us, cost);
    }
}

/// The most units in an interval from `start_us` to `end_us`, both included, by docs/algorithms.md.
fn bound(kernel: &Kernel, start_us: u64, end_us: u64) -> u64 {
    let passed_us = end_us - start_us;
    match kernel {
        Kernel::FixedWindow(k) => k.limit * (end_us / k.window_us - start_us / k.window_us + 1),
        Kernel::CalendarWindow(k) => k.limit * windows_touched(k, start_us, end_us),
        Kernel::SlidingWindow(k) if passed_us < k.window_us => {
            k.limit + k.limit * (end_us % k.window_us) / k.window_us
        }
        Kernel::SlidingLog(k) if passed_us < k.window_us => k.limit,
        Kernel::Gcra(k) => k.burst + passed_us * k.limit / k.period_us,
        Kernel::IntervalBucket(k) => k.capacity + k.refill * passed_us.div_ceil(k.interval_us),
        // The bound covers at most one window.
        Kernel::SlidingWindow(_) | Kernel::SlidingLog(_) | Kernel::Slots(_) | Kernel::Blocked(_) => u64::MAX,
    }
}

/// Units above the bound in the interval that exceeds it most; 0 if none does. `admitted` lists instants and units.
pub(super) fn excess(kernel: &Kernel, admitted: &[(u64, u64)]) -> u64 {
    let mut most = 0;
    for (first, (start_us, _)) in admitted.iter().enumerate() {
        let mut sum = 0;
        for (end_us, units) in &admitted[first..] {
            sum += units;
            most = most.max(sum.saturating_sub(bound(kernel, *start_us, *end_us)));
        }
    }
    most
}

/// Random numbers, the same in every run (SplitMix64).
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }
}

/// A kernel of a kind from 0 to 5, with a limit of up to 12 units.
pub(super) fn kernel_of(kind: u64, random: &mut Random) -> Kernel {
    let (limit, other, period_us) = (random.within(1..=12), random.within(1..=12), random.within(5..=40));
    match kind {
        0 => Kernel::FixedWindow(FixedWindow::new(limit, period_us)),
        1 => Kernel::SlidingWindow(SlidingWindow::new(limit, period_us)),
        2 => Kernel::SlidingLog(SlidingLog::new(limit, period_us)),
        3 => Kernel::Gcra(Gcra::new(limit, period_us, other, Pacing::Meter)),
        4 => Kernel::IntervalBucket(IntervalBucket::new(other, limit, period_us)),
        _ => Kernel::CalendarWindow(calendar(limit, other, period_us)),
    }
}

/// Plays random estimates and settles on one counter. Returns the excess over the bound.
fn story(kind: u64, seed: u64, how: Return) -> u64 {
    let mut random = Random(seed);
    let mut counter = Counter::new(kernel_of(kind, &mut random));
    let (mut now_us, mut grants, mut open) = (T0, Vec::new(), Vec::new());
    for _ in 0..60 {
        now_us += random.within(0..=1) * random.within(0..=24);
        if random.within(0..=1) == 0 || open.is_empty() {
            let estimated = random.within(1..=counter.kernel.max_cost());
            if let Some(grant) = counter.estimate(now_us, estimated, random.within(0..=estimated)) {
                open.push(grants.len());
                grants.push(grant);
            }
        } else {
            let place = random.within(0..=open.len() as u64 - 1) as usize;
            let grant: usize = open.swap_remove(place);
            counter.settle(now_us, grants[grant], how);
        }
    }
    // Nothing was returned for the open estimates.
    open.into_iter().for_each(|index| grants[index].actual = grants[index].estimated);
    excess(&counter.kernel, &grants.iter().map(|grant| (grant.at_us, grant.actual)).collect::<Vec<_>>())
}

const STORIES: u64 = 1_500;

fn stories_over_the_bound(kind: u64, how: Return) -> Vec<u64> {
    (0..STORIES).map(|seed| story(kind, seed, how)).filter(|&excess| excess > 0).collect()
}

#[test]
fn receipts_keep_the_bound_of_each_algorithm() {
    for kind in 0..6 {
        assert_eq!(stories_over_the_bound(kind, Return::Receipt), Vec::<u64>::new(), "kind {kind}");
    }
}

/// Without the grant, units come back to the wrong window. This shows that the stories reach the bounds.
#[test]
fn negative_hits_exceed_the_bound_of_each_algorithm() {
    for kind in 0..6 {
        assert_ne!(stories_over_the_bound(kind, Return::Refund), Vec::<u64>::new(), "kind {kind}");
    }
}

fn settling_kernel() -> impl Strategy<Value = Kernel> {
    // The intervals of an interval bucket start with its first take, and so earlier with an estimate.
    let has_law = |kernel: &Kernel| !matches!(kernel, Kernel::IntervalBucket(_)) && kernel.max_cost() > 0;
    small_kernel().prop_filter("the law holds", has_law)
}

/// Time before a step, and units.
fn steps(most: usize) -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0..30_u64, 1..12_u64), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_settle_never_leaves_more_than_the_real_cost_charged_at_the_grant(
        kernel in settling_kernel(),
        before in steps(6),
        (share, real_share) in (0.0..1.0, 0.0..1.0),
        between in steps(8),
        (wait_us, after) in (0..60_u64, steps(6)),
    ) {
        let mut settled = Counter::new(kernel);
        let mut now_us = T0;
        for (step_us, units) in before {
            now_us += step_us;
            settled.take(now_us, units);
        }
        let part = |whole: u64, share: f64| (whole as f64 * share) as u64;
        let estimated = part(kernel.max_cost(), share) + 1;
        let actual = part(estimated + 1, real_share);
        let mut exact = Counter { charging: Charging::Postpaid, ..settled.clone() };
        let Some(grant) = settled.estimate(now_us, estimated.min(kernel.max_cost()), actual.min(kernel.max_cost())) else {
            return Ok(());
        };
        if grant.actual > 0 {
            exact.take(now_us, grant.actual);
        }
        for (step_us, units) in between {
            now_us += step_us;
            if settled.take(now_us, units).0 == Verdict::Fits {
                prop_assert_eq!(exact.take(now_us, units).0, Verdict::Fits);
            }
        }
        now_us += wait_us;
        settled.settle(now_us, grant, Return::Receipt);
        prop_assert!(settled.peek(now_us).remaining <= exact.peek(now_us).remaining, "{settled:?} {exact:?}");
        for (step_us, units) in after {
            now_us += step_us;
            prop_assert!(settled.peek(now_us).remaining <= exact.peek(now_us).remaining, "{settled:?} {exact:?}");
            if settled.take(now_us, units).0 == Verdict::Fits {
                exact.take(now_us, units);
            }
        }
    }

    #[test]
    fn an_undo_that_has_returned_nothing_changes_nothing(
        kernel in small_kernel(),
        before in steps(6),
        (units, unused) in (1..12_u64, 0..12_u64),
        between in steps(8),
        wait_us in 0..80_u64,
    ) {
        let mut counter = Counter::new(kernel);
        let mut now_us = T0;
        for (step_us, units) in before {
            now_us += step_us;
            counter.take(now_us, units);
        }
        let Some(grant) = counter.estimate(now_us, units, units.saturating_sub(unused)) else { return Ok(()) };
        for (step_us, units) in between {
            now_us += step_us;
            counter.take(now_us, units);
        }
        now_us += wait_us;
        let (remaining, cost) = (counter.peek(now_us).remaining, Cost::undo(grant.estimated - grant.actual, grant.grant));
        prop_assume!(cost.refunded() > 0);
        counter.decide(now_us, cost);
        let attempt = Attempt { now_us, cost };
        let has_returned = kernel.has_returned(&kernel.reading(counter.state.as_ref(), attempt), attempt);
        let after = counter.peek(now_us).remaining;
        prop_assert!(after >= remaining && after - remaining <= cost.refunded());
        prop_assert!(has_returned || after == remaining, "{counter:?}: {remaining}, then {after}");
    }
}
