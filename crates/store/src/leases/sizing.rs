//! How many units a process borrows: from its demand, its share of the counter's growth, and what is left of the
//! limit. Nothing here can exceed a limit: a wrong size is refused, or returned unused.

use engine::algorithm::{Attempt, Kernel, Verdict};
use engine::{Cost, CounterSnapshot};

/// Fewer units are not worth a call.
pub(super) const LEAST_UNITS: u64 = 4;
/// Of its share of what is left, a process borrows one part in this many.
const SHARE_PARTS: u64 = 4;
/// A window's process plans for at most one part in this many of the window.
const WINDOW_PARTS: u64 = 8;
/// The processes of a bucket hold at most about one part in this many of the burst.
const BURST_PARTS: u64 = 16;
/// Shortest time over which a rate is averaged.
const SHORTEST_AVERAGE_US: u64 = 200_000;
/// Rates count thousandths of a unit per second.
const PER_UNIT_AND_US: u128 = 1_000 * 1_000_000;

/// Returns the time for which a process borrows units of this kernel, in microseconds, at most `longest_us`.
pub(super) fn horizon_us(kernel: &Kernel, longest_us: u64) -> u64 {
    let own_us = match kernel {
        Kernel::Gcra(k) => k.drain(k.burst).whole_us / BURST_PARTS,
        kernel => kernel.period_us().unwrap_or(0) / WINDOW_PARTS,
    };
    own_us.min(longest_us)
}

/// Adds a call to a rate: its units, and the time since the call before. For a process that plans for `horizon_us`.
pub(super) fn averaged(rate: u64, (units, passed_us): (u64, u64), horizon_us: u64) -> u64 {
    let average_us = u128::from(horizon_us.max(SHORTEST_AVERAGE_US));
    let sum = u128::from(rate) * average_us + u128::from(units) * PER_UNIT_AND_US;
    u64::try_from(sum / (average_us + u128::from(passed_us))).unwrap_or(u64::MAX)
}

/// Units that come at this rate within `us`.
fn within(rate: u64, us: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(us) / PER_UNIT_AND_US).unwrap_or(u64::MAX)
}

/// This process's part of what all processes record on one counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    own: u64,
    all: u64,
}

/// A process without replies assumes one part in 16.
impl Default for Share {
    fn default() -> Self {
        Self { own: Self::ONE / 16, all: Self::ONE }
    }
}

impl Share {
    const ONE: u64 = 1_024;

    /// Adds a reply: the units that it recorded, and the counter's growth since the reply before.
    /// Each reply weighs four fifths of the next one.
    pub(super) fn add(&mut self, own: u64, growth: u64) {
        let weighted = |sum: u64, units: u64| (sum / 5 * 4).saturating_add(units.saturating_mul(Self::ONE));
        self.own = weighted(self.own, own);
        self.all = weighted(self.all, growth.max(own)).max(self.own).max(1);
    }

    fn of(self, units: u64) -> u64 {
        let part = u128::from(units) * u128::from(self.own) / u128::from(self.all);
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}

/// Returns how many units the process should hold, planning for `horizon_us`. `known`: the counter now.
pub(super) fn wanted(
    kernel: &Kernel,
    known: &CounterSnapshot,
    rate: u64,
    share: Share,
    horizon_us: u64,
) -> u64 {
    let CounterSnapshot { now_us, ref reading } = *known;
    let left_us = kernel.place_end_us(reading).map_or(u64::MAX, |end_us| end_us.saturating_sub(now_us));
    let attempt = Attempt { now_us, cost: Cost::PEEK };
    let remaining = kernel.report(reading, attempt, Verdict::Fits).remaining;
    within(rate, horizon_us.min(left_us)).min(share.of(remaining) / SHARE_PARTS)
}

/// Returns the units to borrow in addition to `want`, so that enough places begin late: in a calm
/// bucket, the first places of a grant pass before they can be spent.
pub(super) fn deposit(kernel: &Kernel, known: &CounterSnapshot, rate: u64, want: u64) -> u64 {
    let Kernel::Gcra(k) = kernel else { return 0 };
    // What drains while all these units are spent.
    let drained = u128::from(want) * u128::from(k.limit) * PER_UNIT_AND_US
        / (u128::from(rate.max(1)) * u128::from(k.period_us));
    let drained = u64::try_from(drained).unwrap_or(u64::MAX);
    drained.saturating_sub(kernel.used(&known.reading, known.now_us)).saturating_sub(want)
}

#[cfg(test)]
mod tests {
    use engine::Pacing;
    use engine::algorithm::{CounterReading, FixedWindow, Gcra, Tat, WindowState};

    use super::*;

    const SECOND_US: u64 = 1_000_000;

    /// The rate after ten seconds of calls, `per_second` of them.
    fn steady(per_second: u64, horizon_us: u64) -> u64 {
        let call = (1, SECOND_US / per_second);
        (0..10 * per_second).fold(0, |rate, _| averaged(rate, call, horizon_us))
    }

    #[test]
    fn a_window_is_planned_an_eighth_ahead_and_a_bucket_a_sixteenth_of_its_burst() {
        let window = |period_us| Kernel::FixedWindow(FixedWindow::new(10, period_us));
        assert_eq!(horizon_us(&window(SECOND_US), SECOND_US), 125_000);
        assert_eq!(horizon_us(&window(60 * SECOND_US), SECOND_US), SECOND_US);
        let bucket = Kernel::Gcra(Gcra::new(10_000, SECOND_US, 1_000, Pacing::Meter));
        assert_eq!(horizon_us(&bucket, SECOND_US), 6_250);
    }

    #[test]
    fn a_rate_follows_the_calls() {
        for per_second in [5, 100, 2_000] {
            let rate = steady(per_second, SECOND_US);
            assert!(
                within(rate, SECOND_US).abs_diff(per_second) <= 1 + per_second / 10,
                "{per_second}: {rate}"
            );
        }
    }

    #[test]
    fn a_share_is_a_sixteenth_until_replies_show_it() {
        let mut share = Share::default();
        assert_eq!(share.of(1_600), 100);
        (0..30).for_each(|_| share.add(10, 40));
        assert!(share.of(1_000).abs_diff(250) <= 2, "{share:?}");
        (0..30).for_each(|_| share.add(10, 0));
        assert!((990..=1_000).contains(&share.of(1_000)), "at most everything: {share:?}");
    }

    #[test]
    fn a_process_takes_a_quarter_of_its_share_and_plans_no_further_than_the_window() {
        let kernel = Kernel::FixedWindow(FixedWindow::new(10_000, SECOND_US));
        let (rate, mut share) = (steady(2_000, 125_000), Share::default());
        (0..50).for_each(|_| share.add(1, 4));
        let want = |now_us: u64, remaining: u64| {
            let reading = CounterReading::Window(WindowState { index: 0, count: 10_000 - remaining });
            wanted(&kernel, &CounterSnapshot { now_us, reading }, rate, share, 125_000)
        };
        assert!(want(0, 10_000).abs_diff(250) <= 10, "{}", want(0, 10_000));
        assert!(want(0, 160).abs_diff(10) <= 1, "a quarter of a quarter: {}", want(0, 160));
        assert!(want(990_000, 10_000).abs_diff(20) <= 2, "10 ms to the end: {}", want(990_000, 10_000));
    }

    #[test]
    fn a_calm_bucket_needs_a_deposit() {
        // 100 units per second of a limit of 1,000.
        let kernel = Kernel::Gcra(Gcra::new(1_000, SECOND_US, 1_000, Pacing::Meter));
        let rate = steady(100, SECOND_US);
        let deposit = |used_us: u64| {
            let reading = CounterReading::Tat(Tat { whole_us: SECOND_US + used_us, fraction: 0 });
            deposit(&kernel, &CounterSnapshot { now_us: SECOND_US, reading }, rate, 6)
        };
        assert!(deposit(0).abs_diff(54) <= 6, "60 ms at 1,000 per second: {}", deposit(0));
        assert!(deposit(30_000).abs_diff(24) <= 6, "{}", deposit(30_000));
        assert_eq!(deposit(60_000), 0, "a backlog of 60 ms is deep enough");
    }
}
