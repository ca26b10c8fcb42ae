//! Known answers at edges that the laws of all kernels do not reach.

use std::num::NonZeroU32;

use super::testing::T0;
use crate::limit::algorithm::{
    Attempt, Blocked, FixedWindow, IntervalBucket, Kernel, SlidingLog, Verdict, WindowState,
};
use crate::{Cost, Pacing};

#[test]
fn a_share_of_a_limit_is_rounded_up() {
    let half = NonZeroU32::new(2).expect("not 0");
    let log = Kernel::SlidingLog(SlidingLog::new(5, 1_000_000)).share_of(half);
    assert_eq!(log, Kernel::SlidingLog(SlidingLog::new(3, 1_000_000)));
    let bucket = Kernel::IntervalBucket(IntervalBucket::new(9, 5, 1_000_000)).share_of(half);
    assert_eq!(bucket, Kernel::IntervalBucket(IntervalBucket::new(5, 3, 1_000_000)));
}

#[test]
fn a_denied_cost_stays_unrecorded_once_the_debt_is_as_large_as_the_limit() {
    let window = FixedWindow::new(5, 1_000_000);
    let stays = |count, cost| window.may_stay_unrecorded(WindowState { index: 0, count }, cost);
    assert!(!stays(9, Cost::take(1)) && stays(10, Cost::take(1)));
    assert!(!stays(4, Cost::take(0)) && stays(5, Cost::take(0)), "a peek needs only a limit that is used up");
}

#[test]
fn a_window_without_units_is_unused_from_the_epoch_on() {
    let window = FixedWindow::new(5, 1_000_000);
    let unused_from_us = |count| window.unused_from_us(WindowState { index: 7, count });
    assert_eq!((unused_from_us(0), unused_from_us(1)), (0, 8_000_000));
}

/// The end of the window of a blocked limit, whichever side of its start the clock is on.
#[test]
fn a_blocked_limit_tells_the_end_of_its_window() {
    let until_reset = |blocked: Blocked, now_us| {
        blocked.report(Attempt { now_us, cost: Cost::take(1) }, Verdict::Over).until_reset_us
    };
    let minute = Blocked::new(60_000_000);
    assert_eq!(until_reset(minute, 0), 60_000_000);
    assert_eq!(until_reset(minute, 59_999_999), 1);
    let later = minute.within((T0, T0 + 60_000_000));
    assert_eq!(until_reset(later, T0 + 10), 59_999_990);
    assert_eq!(until_reset(later, T0 - 1), 1, "the clock of the store is behind the start");
    assert_eq!(until_reset(later, T0 - 60_000_000), 60_000_000);
    assert_eq!(until_reset(later, T0 - 60_000_001), 1);
}

#[test]
fn a_pacing_has_the_name_that_rule_files_use() {
    assert_eq!((Pacing::Meter.name(), Pacing::Queue.name()), ("meter", "queue"));
}
