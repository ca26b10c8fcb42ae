//! Counts units per day, week, month or year of a time zone. The kernel gets window boundaries as numbers;
//! [`Calendar`](crate::Calendar) chooses them.

use super::attempt::{Attempt, Cost, MAX_UNITS, Report, Verdict};
use super::fixed_window::window_report;

/// `limit` units per window. The planning process supplies the three boundaries around its own time, with the nearest
/// in the middle; the store picks the window that contains the store's time. The two clocks may therefore differ by
/// half a window, or by any amount if all windows have the same length. If lengths differ, a stored window ends too
/// early by at most the difference of two lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarWindow {
    /// 1 to 2^52 units.
    pub limit: u64,
    first_us: u64,
    middle_us: u64,
    last_us: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalendarState {
    /// Start of the window, microseconds since the epoch.
    pub start_us: u64,
    /// Units recorded, exact up to 2^53 - 1.
    pub count: u64,
}

impl CalendarWindow {
    /// `boundaries`: three ascending instants, microseconds since the epoch.
    pub const fn new(limit: u64, [first_us, middle_us, last_us]: [u64; 3]) -> Self {
        Self { limit, first_us, middle_us, last_us }
    }

    pub fn boundaries(&self) -> [u64; 3] {
        [self.first_us, self.middle_us, self.last_us]
    }

    pub(crate) fn with_boundaries(&self, boundaries: [u64; 3]) -> Self {
        Self::new(self.limit, boundaries)
    }

    /// Length of the later window, below 2^45 us.
    pub(super) fn length_us(&self) -> u64 {
        self.last_us - self.middle_us
    }

    /// Length of the earlier window, below 2^45 us.
    fn first_length_us(&self) -> u64 {
        self.middle_us - self.first_us
    }

    /// Returns when the window at `now_us` starts. A time outside the boundaries means that the clocks differ by more
    /// than half a window. The two windows then repeat in both directions, so that every time lies in a window.
    fn start_us(&self, now_us: u64) -> u64 {
        if now_us < self.middle_us {
            let windows_before = self.first_us.saturating_sub(now_us).div_ceil(self.first_length_us());
            self.first_us.saturating_sub(windows_before * self.first_length_us())
        } else if now_us < self.last_us {
            self.middle_us
        } else {
            now_us - (now_us - self.last_us) % self.length_us()
        }
    }

    pub(super) fn end_us(&self, state: CalendarState) -> u64 {
        if state.start_us < self.middle_us {
            (state.start_us + self.first_length_us()).min(self.middle_us)
        } else if state.start_us < self.last_us {
            self.last_us
        } else {
            state.start_us + self.length_us()
        }
    }

    /// Returns the state at `now_us`. If the clock stepped back, a later window that holds units stays current. Outside
    /// the boundaries an earlier window stays current too, until it is as long as the windows there: windows of another
    /// length would start inside it.
    pub(super) fn advanced_to(&self, state: Option<CalendarState>, now_us: u64) -> CalendarState {
        let start_us = self.start_us(now_us);
        let has_begun_earlier = |state| {
            let is_known = (self.first_us..self.last_us).contains(&now_us);
            !is_known && self.end_us(state) > now_us
        };
        match state {
            Some(state) if state.count > 0 && (state.start_us >= start_us || has_begun_earlier(state)) => {
                state
            }
            _ => CalendarState { start_us, count: 0 },
        }
    }

    pub(super) fn fits(&self, state: CalendarState, needed: u64) -> bool {
        state.count + needed <= self.limit
    }

    pub(super) fn record(&self, state: CalendarState, cost: Cost) -> CalendarState {
        let count = state.count.saturating_sub(cost.refunded()) + cost.taken();
        CalendarState { count: count.min(MAX_UNITS), ..state }
    }

    pub(super) fn unused_from_us(&self, state: CalendarState) -> u64 {
        if state.count > 0 { self.end_us(state) } else { 0 }
    }

    pub(super) fn report(&self, state: CalendarState, attempt: Attempt, verdict: Verdict) -> Report {
        let end_after_us = self.end_us(state).saturating_sub(attempt.now_us);
        window_report((self.limit, state.count), end_after_us, attempt.cost, verdict)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Kernel;
    use super::super::state::State;
    use super::super::tests::testing::Counter;
    use super::*;
    use crate::{Calendar, Charging, RetryAfter};

    const HOUR_US: u64 = 3_600_000_000;

    fn window(limit: u64, boundaries: [u64; 3]) -> Kernel {
        Kernel::CalendarWindow(CalendarWindow::new(limit, boundaries))
    }

    #[test]
    fn a_debt_is_counted_exactly_and_ends_with_the_window() {
        let mut counter =
            Counter { charging: Charging::Postpaid, ..Counter::new(window(10, [0, 1_000, 2_000])) };
        let (verdict, report) = counter.take(5, 1 << 40);
        assert_eq!((verdict, report.remaining, report.over_by), (Verdict::Over, 0, (1 << 40) - 10));
        assert_eq!(counter.decide(6, Cost::refund((1 << 40) - 3)).1.remaining, 7);
        assert_eq!(counter.take(1_000, 4).1.remaining, 6);
    }

    #[test]
    fn a_limit_may_be_near_the_largest_exact_number() {
        let most = 1 << 52;
        let mut counter = Counter::new(window(most, [0, 1_000, 2_000]));
        for taken in [1_u64 << 32, 1 << 51, 1] {
            assert_eq!(counter.take(5, taken).0, Verdict::Fits);
        }
        assert_eq!(counter.peek(5).remaining, most - (1 << 32) - (1 << 51) - 1);
    }

    #[test]
    fn a_store_that_is_far_ahead_still_has_windows() {
        let mut counter = Counter::new(window(1, [0, 1_000, 1_300]));
        assert_eq!(counter.take(1_299, 1).0, Verdict::Fits);
        assert_eq!(counter.take(1_300, 1).1.until_reset_us, 300);
        assert_eq!(counter.take(1_599, 1).1.retry_after, RetryAfter::In(1));
        assert_eq!(counter.take(1_950, 1).1.until_reset_us, 250);
    }

    #[test]
    fn a_process_that_is_far_ahead_still_has_windows() {
        let mut counter = Counter::new(window(1, [2_000, 2_300, 3_000]));
        assert_eq!(counter.take(1_999, 1).1.until_reset_us, 1);
        assert_eq!(counter.peek(2_000).remaining, 1, "the first window that it knows");
        let mut counter = Counter::new(window(1, [2_000, 2_300, 3_000]));
        assert_eq!(counter.take(1_400, 1).1.until_reset_us, 300);
        assert_eq!(counter.take(1_699, 1).1.retry_after, RetryAfter::In(1));
        assert_eq!(counter.take(1_950, 1).1.until_reset_us, 50);
        // Windows before the first are cut off at the epoch.
        let mut counter = Counter::new(window(1, [200, 500, 800]));
        assert_eq!(counter.take(7, 1).0, Verdict::Fits);
        assert_eq!(counter.take(8, 1).0, Verdict::Over);
    }

    #[test]
    fn a_process_that_is_far_ahead_begins_no_window_anew() {
        const DAY_US: u64 = 24 * HOUR_US;
        let days = (0..400).map(|day| (20_000 + day) * DAY_US).collect();
        let calendar = Calendar::new("UTC", "day", days).expect("rising");
        let now_us = 20_010 * DAY_US + 9 * HOUR_US;
        for days_ahead in [1, 2, 3, 40, 380] {
            let mut counter = Counter::new(window(5, calendar.around(now_us)));
            assert_eq!(counter.take(now_us, 5).0, Verdict::Fits);
            counter.kernel = window(5, calendar.around(now_us + days_ahead * DAY_US));
            let (verdict, report) = counter.take(now_us + 1, 1);
            assert_eq!((verdict, report.remaining), (Verdict::Over, 0), "{days_ahead} days ahead");
            assert_eq!(report.until_reset_us, 15 * HOUR_US - 1, "{days_ahead} days ahead");
            // On a new day, the process whose clock is ahead takes first.
            assert_eq!(counter.take(now_us + DAY_US, 1).1.remaining, 4, "{days_ahead} days ahead");
            counter.kernel = window(5, calendar.around(now_us + DAY_US));
            assert_eq!(counter.take(now_us + DAY_US, 1).1.remaining, 3, "after {days_ahead} days ahead");
        }
    }

    #[test]
    fn a_process_with_a_clock_far_off_begins_no_longer_or_shorter_window_in_the_midst_of_one() {
        const DAY_US: u64 = 24 * HOUR_US;
        // The months of 2023 and 2024.
        let days =
            [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let starts = days.iter().scan(19_358 * DAY_US, |at_us, days| {
            let start_us = *at_us;
            *at_us += days * DAY_US;
            Some(start_us)
        });
        let calendar = Calendar::new("UTC", "month", starts.collect()).expect("rising");
        let march_us = calendar.window(19_358 * DAY_US + 70 * DAY_US).0;
        let noon_us = march_us + 9 * DAY_US + 12 * HOUR_US;
        for days_off in [-60, -40, -1, 1, 40, 60, 100, 300] {
            let mut counter = Counter::new(window(5, calendar.around(noon_us)));
            assert_eq!(counter.take(noon_us, 5).0, Verdict::Fits);
            counter.kernel =
                window(5, calendar.around(noon_us.saturating_add_signed(days_off * DAY_US as i64)));
            let (verdict, report) = counter.take(noon_us, 1);
            assert_eq!(verdict, Verdict::Over, "{days_off} days off");
            assert!(report.until_reset_us >= 18 * DAY_US, "{days_off} days off: {report:?}");
            assert!(report.until_reset_us <= 22 * DAY_US, "{days_off} days off: {report:?}");
            // The month is over by the store's clock.
            counter.kernel = window(5, calendar.around(noon_us + 31 * DAY_US));
            assert_eq!(counter.take(noon_us + 31 * DAY_US, 1).1.remaining, 4, "{days_off} days off");
        }
    }

    /// Generates windows of 1 to 40 hours and a sequence of store times, each with the clock error of the process that
    /// charges. Errors stay below `most` thousandths of the shortest window.
    fn story(
        lengths: impl Strategy<Value = Vec<u64>>,
        most: i64,
    ) -> impl Strategy<Value = (Vec<u64>, Vec<(u64, i64, u64)>)> {
        let step = (0..30_u64, 1 - most..most, 1..6_u64);
        (lengths, prop::collection::vec(step, 1..40)).prop_map(|(lengths, steps)| {
            let starts = lengths.iter().scan(1_000 * HOUR_US, |at_us, hours| {
                *at_us += hours * HOUR_US;
                Some(*at_us)
            });
            (starts.collect(), steps)
        })
    }

    /// Checks processes with wrong clocks against a model that knows all boundaries and counts each window by store
    /// time.
    fn check((starts, steps): (Vec<u64>, Vec<(u64, i64, u64)>)) -> Result<(), TestCaseError> {
        let calendar = Calendar::new("UTC", "test", starts.clone()).expect("rising");
        let mut counter = Counter::new(window(12, [0, 1, 2]));
        let shortest = starts.windows(2).map(|pair| pair[1] - pair[0]).min().expect("windows");
        let (mut now_us, mut used) = (starts[1], (0, 0));
        for (hours, error, units) in steps {
            now_us += hours * HOUR_US;
            let (start_us, end_us) = calendar.window(now_us);
            let skew = i64::try_from(shortest).expect("hours") / 1_000 * error;
            let planned = calendar.around(now_us.saturating_add_signed(skew));
            counter.kernel = window(12, planned);
            if used.0 != start_us {
                used = (start_us, 0);
            }
            let (verdict, report) = counter.take(now_us, units);
            let fits = used.1 + units <= 12;
            used.1 += if fits { units } else { 0 };
            prop_assert_eq!(verdict == Verdict::Fits, fits, "{:?} at {}", planned, now_us);
            prop_assert_eq!((report.remaining, report.until_reset_us), (12 - used.1, end_us - now_us));
        }
        Ok(())
    }

    /// Checks that a stored window ends when a window of the true time begins or when it is as old as the shortest one.
    /// Until then it admits at most the limit, however wrong the clocks are.
    fn check_stored((starts, steps): (Vec<u64>, Vec<(u64, i64, u64)>)) -> Result<(), TestCaseError> {
        let calendar = Calendar::new("UTC", "test", starts.clone()).expect("rising");
        let mut counter = Counter::new(window(12, [0, 1, 2]));
        let shortest = starts.windows(2).map(|pair| pair[1] - pair[0]).min().expect("windows");
        let (mut now_us, mut stored, mut admitted) = (starts[1], None::<u64>, 0);
        for (hours, error, units) in steps {
            now_us += hours * HOUR_US;
            let skew = i64::try_from(HOUR_US).expect("hours") / 1_000 * error;
            counter.kernel = window(12, calendar.around(now_us.saturating_add_signed(skew)));
            if counter.take(now_us, units).0 == Verdict::Fits {
                let start_us = counter.state.as_ref().and_then(State::calendar).expect("recorded").start_us;
                if let Some(before_us) = stored.filter(|before_us| *before_us != start_us) {
                    let is_over = calendar.window(now_us).0 > before_us || now_us >= before_us + shortest;
                    prop_assert!(is_over, "{before_us} is left for {start_us} at {now_us}");
                    admitted = 0;
                }
                (stored, admitted) = (Some(start_us), admitted + units);
                prop_assert!(admitted <= 12, "{admitted} in {start_us}");
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn windows_of_any_lengths_are_not_begun_anew_in_their_midst(
            story in story(prop::collection::vec(1..40_u64, 12), 400_000),
        ) {
            check_stored(story)?;
        }

        #[test]
        fn clocks_may_differ_by_half_a_window(story in story(prop::collection::vec(1..40_u64, 12), 500)) {
            check(story)?;
        }

        #[test]
        fn clocks_may_differ_by_many_windows_of_one_length(
            story in story((1..40_u64).prop_map(|hours| vec![hours; 12]), 5_000),
        ) {
            check(story)?;
        }
    }
}
