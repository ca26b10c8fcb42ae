//! Known answers at edges that the laws of all kernels do not reach.

use std::num::NonZeroU32;

use super::testing::{Counter, T0, calendar};
use crate::limit::algorithm::{
    Attempt, Blocked, CounterReading, FixedWindow, Gcra, IntervalBucket, Kernel, LogReading, SlidingLog,
    SlidingWindow, Tat, Verdict, WindowState,
};
use crate::{Cost, Grant, Pacing};

const SECOND_US: u64 = 1_000_000;

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
fn a_later_window_stays_current_only_with_units_in_it() {
    let window = FixedWindow::new(5, SECOND_US);
    let index = |count| window.advanced_to(Some(WindowState { index: 7, count }), 3 * SECOND_US).index;
    assert_eq!((index(0), index(1)), (3, 7));
}

/// An undo of all 4 units of a grant at [`T0`], for each kernel the last time at which it gives units back, and the
/// first at which time has given all of them back.
#[test]
fn an_undo_gives_units_back_until_time_has_done_it() {
    let log = Kernel::SlidingLog(SlidingLog::new(10, SECOND_US));
    let table = [
        (Kernel::FixedWindow(FixedWindow::new(10, SECOND_US)), 999_999, 1_000_000),
        (Kernel::CalendarWindow(calendar(10, SECOND_US, SECOND_US)), 499_999, 500_000),
        (Kernel::SlidingWindow(SlidingWindow::new(10, SECOND_US)), 1_999_999, 2_000_000),
        (log, 999_999, 1_000_000),
        (Kernel::Gcra(Gcra::new(10, SECOND_US, 10, Pacing::Meter)), 399_999, 400_000),
        (Kernel::IntervalBucket(IntervalBucket::new(10, 4, SECOND_US)), 999_999, 1_000_000),
        (Kernel::IntervalBucket(IntervalBucket::new(10, 4, SECOND_US)), 999_999, 1_500_000),
    ];
    for (kernel, last_us, first_us) in table {
        let mut counter = Counter::new(kernel);
        counter.take(T0, 4);
        let reading = kernel.reading(counter.state.as_ref(), Attempt { now_us: T0, cost: Cost::take(4) });
        let cost = Cost::undo(4, kernel.grant(&reading, 4).expect("a counter"));
        for (after_us, returns) in [(last_us, true), (first_us, false)] {
            let attempt = Attempt { now_us: T0 + after_us, cost };
            let is_changed = kernel.is_changed_by(counter.state.as_ref(), attempt);
            let after = kernel.recorded(counter.state.clone(), attempt);
            let has_returned = kernel.has_returned(&kernel.reading(after.as_ref(), attempt), attempt);
            // A log drops its expired entries in any case.
            assert_eq!(
                (has_returned, is_changed),
                (returns, returns || kernel == log),
                "{kernel}: {after_us}"
            );
        }
    }
    let undo = Attempt { now_us: T0, cost: Cost::undo(4, Grant { id: T0, limit: None }) };
    let blocked = Kernel::Blocked(Blocked::new(SECOND_US));
    assert!(!blocked.is_changed_by(None, undo) && !blocked.has_returned(&CounterReading::Nothing, undo));
}

/// 3 units per second: a unit takes 333,333 1/3 us. Granted by a limit of 6, it took 166,666 2/3 us.
#[test]
fn units_of_a_grant_drain_in_exact_fractions_at_the_rate_of_its_limit() {
    let kernel = Gcra::new(3, SECOND_US, 3, Pacing::Meter);
    let drain = |limit| kernel.drain_of_grant(1, Grant { id: T0, limit: NonZeroU32::new(limit) });
    assert_eq!(drain(0), Tat { whole_us: 333_333, fraction: 1 });
    assert_eq!(drain(6), Tat { whole_us: 166_666, fraction: 2 });
}

#[test]
fn a_reading_of_a_log_holds_until_its_oldest_entry_expires() {
    let log = Kernel::SlidingLog(SlidingLog::new(3, SECOND_US));
    let reading = CounterReading::Log(LogReading { used: 1, newest_us: T0, next_us: T0, retry_us: 0 });
    assert_eq!(log.reading_later(&reading, T0 + 999_999), Some(reading));
    assert_eq!(log.reading_later(&reading, T0 + 1_000_000), None);
}

#[test]
fn a_reading_of_another_kernel_says_nothing_of_a_blocked_limit() {
    let blocked = Kernel::Blocked(Blocked::new(SECOND_US));
    let window = CounterReading::Window(WindowState { index: 7, count: 1 });
    assert_eq!(blocked.reading_later(&CounterReading::Nothing, T0), Some(CounterReading::Nothing));
    assert_eq!(blocked.reading_later(&window, T0), None);
}

#[test]
fn a_pacing_has_the_name_that_rule_files_use() {
    assert_eq!((Pacing::Meter.name(), Pacing::Queue.name()), ("meter", "queue"));
}
