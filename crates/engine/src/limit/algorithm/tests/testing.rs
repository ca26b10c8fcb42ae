//! A single counter, and generators, for the tests of the kernels.

use std::collections::HashSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::limit::algorithm::{
    Attempt, Blocked, CalendarWindow, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow,
    State,
};
use crate::{Algorithm, Charging, Cost, LONGEST_REFILL_US, Pacing, Report, RetryAfter, Verdict};

/// A minute boundary.
pub(crate) const T0: u64 = 1_700_000_040_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Counter {
    pub kernel: Kernel,
    pub state: Option<State>,
    pub charging: Charging,
}

impl Counter {
    pub fn new(kernel: Kernel) -> Self {
        Self { kernel, state: None, charging: Charging::Prepaid }
    }

    /// Decides and records like a store with only this charge.
    pub fn decide(&mut self, now_us: u64, cost: Cost) -> (Verdict, Report) {
        let attempt = Attempt { now_us, cost };
        let verdict = self.kernel.verdict(self.state.as_ref(), attempt);
        let is_recorded = self.charging == Charging::Postpaid || verdict == Verdict::Fits;
        if is_recorded && cost.changes_counter() {
            self.state = self.kernel.recorded(self.state.take(), attempt);
        }
        let reading = self.kernel.reading(self.state.as_ref(), attempt);
        (verdict, self.kernel.report(&reading, attempt, verdict))
    }

    pub fn take(&mut self, now_us: u64, units: u64) -> (Verdict, Report) {
        self.decide(now_us, Cost::take(units))
    }

    /// When the same cost would fit again.
    pub fn wait_again(&self, now_us: u64, cost: Cost) -> RetryAfter {
        let attempt = Attempt { now_us, cost };
        self.kernel.wait(&self.kernel.reading(self.state.as_ref(), attempt), attempt)
    }

    pub fn peek(&self, now_us: u64) -> Report {
        self.clone().decide(now_us, Cost::PEEK).1
    }

    /// Changes nothing.
    pub fn admits(&self, now_us: u64, units: u64) -> bool {
        self.clone().take(now_us, units).0 == Verdict::Fits
    }
}

/// Kernels so small that every instant can be tried.
pub(crate) fn small_kernel() -> impl Strategy<Value = Kernel> {
    (0..7_u8, 1..12_u64, 1..40_u64, 1..12_u64).prop_map(|(which, limit, period_us, burst)| match which {
        0 => Kernel::FixedWindow(FixedWindow::new(limit, period_us)),
        1 => Kernel::SlidingWindow(SlidingWindow::new(limit, period_us)),
        2 => Kernel::SlidingLog(SlidingLog::new(limit, period_us)),
        3 => Kernel::Gcra(Gcra::new(limit, period_us, burst, Pacing::Meter)),
        4 => Kernel::Gcra(Gcra::new(limit, period_us, burst, Pacing::Queue)),
        5 => Kernel::CalendarWindow(calendar(limit, burst, period_us)),
        _ => Kernel::IntervalBucket(IntervalBucket::new(burst, limit, period_us)),
    })
}

/// Windows of two lengths that begin and end near [`T0`].
pub(crate) fn calendar(limit: u64, first_length_us: u64, length_us: u64) -> CalendarWindow {
    let middle_us = T0 + length_us / 2;
    CalendarWindow::new(limit, [middle_us - first_length_us, middle_us, middle_us + length_us])
}

/// How many windows the interval from `start_us` to `end_us` touches.
pub(crate) fn windows_touched(kernel: &CalendarWindow, start_us: u64, end_us: u64) -> u64 {
    let [first_us, middle_us, last_us] = kernel.boundaries();
    let before = |now_us: u64| first_us.saturating_sub(now_us).div_ceil(middle_us - first_us);
    let after = |now_us: u64| match now_us.checked_sub(last_us) {
        Some(later_us) => 2 + later_us / (last_us - middle_us),
        None => u64::from(now_us >= middle_us),
    };
    before(start_us) - before(end_us) + after(end_us) - after(start_us) + 1
}

/// Kernels at the edge of the exact range.
pub(crate) fn large_kernel() -> impl Strategy<Value = Kernel> {
    let near = |most: u64| prop_oneof![1..100_u64, most - 300..=most, 1..=most];
    let [fixed, sliding, most] =
        [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::Gcra].map(|of| near(of.max_limit()));
    let period = prop_oneof![1..1_000_u64, 1..31_622_400_000_001_u64];
    (0..7_u8, (fixed, sliding, most), period, 1..1_000_000_u64).prop_filter_map(
        "the time in which the bucket fills",
        |(which, (fixed, sliding, limit), period_us, burst)| {
            let refill_us = u128::from(burst) * u128::from(period_us) / u128::from(limit);
            let interval_refill_us = u128::from(burst.div_ceil(limit)) * u128::from(period_us);
            let is_allowed = |refill_us: u128| refill_us <= u128::from(LONGEST_REFILL_US);
            Some(match which {
                0 => Kernel::FixedWindow(FixedWindow::new(fixed, period_us)),
                1 => Kernel::SlidingWindow(SlidingWindow::new(sliding, period_us)),
                2 => Kernel::SlidingLog(SlidingLog::new(
                    limit.min(crate::limit::algorithm::MAX_LOG_LIMIT),
                    period_us,
                )),
                6 => Kernel::CalendarWindow(calendar(fixed, burst, period_us)),
                3 | 4 if is_allowed(refill_us) => {
                    Kernel::Gcra(Gcra::new(limit, period_us, burst, Pacing::Meter))
                }
                5 if is_allowed(interval_refill_us) => {
                    Kernel::IntervalBucket(IntervalBucket::new(burst, limit, period_us))
                }
                _ => return None,
            })
        },
    )
}

pub(crate) fn any_kernel() -> impl Strategy<Value = Kernel> {
    prop_oneof![4 => small_kernel(), 1 => large_kernel(), 1 => (1..40_u64).prop_map(|window_us| Kernel::Blocked(Blocked::new(window_us)))]
}

/// One step of a history: how far the clock moves (rarely back), and the cost decided then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    pub clock_us: i64,
    pub cost: Cost,
}

pub(crate) fn moves(most: usize) -> impl Strategy<Value = Vec<Move>> {
    let clock = prop_oneof![23 => 0..60_i64, 2 => -20..0_i64];
    let cost = prop_oneof![
        8 => (1..26_u64).prop_map(Cost::take),
        1 => Just(Cost::PEEK),
        1 => (1..26_u64).prop_map(Cost::refund),
    ];
    prop::collection::vec((clock, cost).prop_map(|(clock_us, cost)| Move { clock_us, cost }), 0..most)
}

/// A counter with a history, and the time at which the history ends.
pub(crate) fn counter_with_past(
    kernel: impl Strategy<Value = Kernel>,
    charging: impl Strategy<Value = Charging>,
) -> impl Strategy<Value = (Counter, u64)> {
    (kernel, charging, moves(12)).prop_map(|(kernel, charging, moves)| {
        let mut counter = Counter { charging, ..Counter::new(kernel) };
        let mut now_us = T0;
        for step in moves {
            now_us = now_us.saturating_add_signed(step.clock_us);
            counter.decide(now_us, step.cost);
        }
        (counter, now_us)
    })
}

pub(crate) fn any_charging() -> impl Strategy<Value = Charging> {
    prop_oneof![3 => Just(Charging::Prepaid), 1 => Just(Charging::Postpaid)]
}

/// A generator that omits a kernel makes the properties blind to it.
#[test]
fn the_generators_make_every_kernel() {
    let kinds = |kernels: BoxedStrategy<Kernel>| {
        let mut runner = TestRunner::deterministic();
        let kernel = || kernels.new_tree(&mut runner).expect("a kernel").current();
        let kinds = std::iter::repeat_with(kernel).take(1_000);
        kinds.map(|kernel| std::mem::discriminant(&kernel)).collect::<HashSet<_>>().len()
    };
    // Slots count no units, and follow laws of their own.
    let with_units = Kernel::KINDS - 1;
    assert_eq!(kinds(any_kernel().boxed()), with_units);
    let with_counter = with_units - 1;
    assert_eq!((kinds(small_kernel().boxed()), kinds(large_kernel().boxed())), (with_counter, with_counter));
}
