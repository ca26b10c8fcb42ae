//! Known answers at edges that the laws of all kernels do not reach.

use std::num::NonZeroU32;

use super::testing::{Counter, T0, calendar};
use crate::limit::algorithm::{
    Attempt, Blocked, BucketState, CalendarState, CalendarWindow, CounterReading, FixedWindow, Gcra,
    IntervalBucket, Kernel, LogReading, OpenSlots, SlidingLog, SlidingWindow, Slots, SlotsReading, Tat,
    TokenState, Verdict, WindowState,
};
use crate::{Cost, Grant, Pacing, RetryAfter};

const SECOND_US: u64 = 1_000_000;

#[test]
fn a_share_of_a_limit_is_rounded_up() {
    let kernels = |limit, burst| {
        [
            Kernel::FixedWindow(FixedWindow::new(limit, SECOND_US)),
            Kernel::CalendarWindow(calendar(limit, SECOND_US, SECOND_US)),
            Kernel::SlidingWindow(SlidingWindow::new(limit, SECOND_US)),
            Kernel::SlidingLog(SlidingLog::new(limit, SECOND_US)),
            Kernel::Gcra(Gcra::new(limit, SECOND_US, burst, Pacing::Queue)),
            Kernel::IntervalBucket(IntervalBucket::new(burst, limit, SECOND_US)),
            Kernel::Slots(Slots::new(limit, SECOND_US)),
            Kernel::Blocked(Blocked::new(SECOND_US)),
        ]
    };
    let half = NonZeroU32::new(2).expect("not 0");
    assert_eq!(kernels(5, 9).map(|kernel| kernel.share_of(half)), kernels(3, 5));
}

#[test]
fn a_denied_cost_stays_unrecorded_once_the_debt_is_as_large_as_the_limit() {
    let fixed = |count| CounterReading::Window(WindowState { index: 0, count });
    let day = |count| CounterReading::Calendar(CalendarState { start_us: T0, count });
    let log = |used| CounterReading::Log(LogReading { used, ..LogReading::default() });
    let windows: [(Kernel, &dyn Fn(u64) -> CounterReading); 2] = [
        (Kernel::FixedWindow(FixedWindow::new(5, SECOND_US)), &fixed),
        (Kernel::CalendarWindow(calendar(5, SECOND_US, SECOND_US)), &day),
    ];
    for (kernel, reading) in windows {
        let stays = |count, cost| kernel.may_stay_unrecorded(&reading(count), cost);
        assert!(!stays(9, Cost::take(1)) && stays(10, Cost::take(1)), "{kernel}");
        assert!(!stays(4, Cost::PEEK) && stays(5, Cost::PEEK), "{kernel}: a peek needs only a used up limit");
    }
    let kernel = Kernel::SlidingLog(SlidingLog::new(5, SECOND_US));
    assert!(!kernel.may_stay_unrecorded(&log(10), Cost::take(1)), "a debt that lasts");
}

#[test]
fn a_window_without_units_is_unused_from_the_epoch_on() {
    let fixed = |count| FixedWindow::new(5, SECOND_US).unused_from_us(WindowState { index: 7, count });
    let months = CalendarWindow::new(5, [0, 1_000, 3_000]);
    let month = |count| months.unused_from_us(CalendarState { start_us: 1_000, count });
    assert_eq!((fixed(0), fixed(1), month(0), month(1)), (0, 8_000_000, 0, 3_000));
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
    let later = minute.within((T0 + 7, T0 + 30_000_007));
    assert_eq!(until_reset(later, T0 + 17), 29_999_990);
    assert_eq!(until_reset(later, T0 + 6), 1, "the clock of the store is behind the start");
    assert_eq!(until_reset(later, T0 + 7 - 30_000_000), 30_000_000);
    assert_eq!(until_reset(later, T0 + 6 - 30_000_000), 1);
}

#[test]
fn a_later_window_stays_current_only_with_units_in_it() {
    let window = FixedWindow::new(5, SECOND_US);
    let index = |count| window.advanced_to(Some(WindowState { index: 7, count }), 3 * SECOND_US).index;
    assert_eq!((index(0), index(1)), (3, 7));
    let months = CalendarWindow::new(5, [0, 1_000, 3_000]);
    let start = |count| months.advanced_to(Some(CalendarState { start_us: 1_000, count }), 999).start_us;
    assert_eq!((start(0), start(1)), (0, 1_000));
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

/// Hits at one instant are one entry. The grant at [`T0`] is gone when its window ends, whatever came after it.
#[test]
fn an_undo_rewrites_fewer_than_64_later_entries_of_a_log() {
    let undo = Cost::undo(4, Grant { id: T0, limit: None });
    for (later, after_us, verdict, remaining) in [
        (63, 100, Verdict::Fits, 100 - 64),
        (64, 100, Verdict::Over, 100 - 69),
        (64, SECOND_US, Verdict::Fits, 100 - 65),
    ] {
        let mut counter = Counter::new(Kernel::SlidingLog(SlidingLog::new(100, SECOND_US)));
        counter.take(T0, 4);
        for at_us in (1..=later).chain([later]) {
            counter.take(T0 + at_us, 1);
        }
        let (seen, report) = counter.decide(T0 + after_us, undo);
        assert_eq!((seen, report.remaining), (verdict, remaining), "{later} entries, after {after_us} us");
    }
}

#[test]
fn a_log_weighs_as_much_as_the_hits_of_its_window() {
    let weight = |hits: u64, apart_us| {
        let mut counter = Counter::new(Kernel::SlidingLog(SlidingLog::new(100, SECOND_US)));
        (0..hits).for_each(|hit| assert_eq!(counter.take(T0 + hit * apart_us, 1).0, Verdict::Fits));
        counter.state.expect("a log").weight()
    };
    assert!(weight(100, 1) > 100 / 16, "16 hits weigh as much as another counter");
    assert!(weight(1_000, SECOND_US / 10) < 100 / 16, "10 hits at a time");
}

#[test]
fn a_reading_of_a_log_holds_until_its_oldest_entry_expires() {
    let log = Kernel::SlidingLog(SlidingLog::new(3, SECOND_US));
    let reading = CounterReading::Log(LogReading { used: 1, newest_us: T0, next_us: T0, retry_us: 0 });
    assert_eq!(log.reading_later(&reading, T0 + 999_999), Some(reading));
    assert_eq!(log.reading_later(&reading, T0 + 1_000_000), None);
}

/// A debt of 2 lasts until its window ends, even for a check that needs no free unit.
#[test]
fn all_but_a_refund_waits_for_the_end_of_a_debt() {
    let window = Kernel::FixedWindow(FixedWindow::new(5, SECOND_US));
    let wait = |count, cost| {
        let reading = CounterReading::Window(WindowState { index: T0 / SECOND_US, count });
        window.wait(&reading, Attempt { now_us: T0, cost })
    };
    let costs = [Cost::take(1), Cost::DEBT_PEEK, Cost::refund(1)];
    let second = RetryAfter::In(SECOND_US);
    assert_eq!(costs.map(|cost| wait(5, cost)), [second, RetryAfter::Now, RetryAfter::Now]);
    assert_eq!(costs.map(|cost| wait(7, cost)), [second, second, RetryAfter::Now]);
}

#[test]
fn a_slot_is_freed_by_its_release_alone_and_a_log_is_read_for_one_cost() {
    let slots = Kernel::Slots(Slots::new(5, SECOND_US));
    let log = Kernel::SlidingLog(SlidingLog::new(5, SECOND_US));
    let window = Kernel::FixedWindow(FixedWindow::new(5, SECOND_US));
    // Does only time free units, does a reading depend on the cost, and how much is recorded at most?
    let seen = |kernel: Kernel| {
        (kernel.is_freed_by_time(), kernel.reading_depends_on_cost(), kernel.most_recorded())
    };
    let expected = [(false, false, 0), (true, true, 10), (true, false, (1 << 53) - 1)];
    assert_eq!([slots, log, window].map(seen), expected);
    let mut counter = Counter::new(slots);
    counter.decide(T0, Cost::slot(7));
    let mut release = |id| {
        let attempt = Attempt { now_us: T0, cost: Cost::undo(1, Grant { id, limit: None }) };
        counter.decide(T0, attempt.cost);
        slots.has_returned(&slots.reading(counter.state.as_ref(), attempt), attempt)
    };
    assert_eq!([8, 7, 7].map(&mut release), [false, true, false]);
}

/// Two slots, each for 10 seconds; times in seconds.
#[test]
fn a_slot_is_open_before_its_end_and_only_a_later_end_moves_it() {
    let kernel = Slots::new(2, 10 * SECOND_US);
    assert_eq!((kernel.limit, kernel.hold_us), (2, 10 * SECOND_US));
    let us = |second| T0 + second * SECOND_US;
    let at = |second, cost| Attempt { now_us: us(second), cost };
    let fits = |slots: &OpenSlots, second, cost| kernel.fits(Some(slots), at(second, cost));
    let seconds = |slots: &OpenSlots, second| {
        slots.ends(us(second)).map(|end_us| (end_us - T0) / SECOND_US).collect::<Vec<_>>()
    };
    let mut slots = OpenSlots::default();
    // (second, id, ends): the clock steps back for the last one.
    for (second, id, ends) in
        [(0, 1, vec![10]), (5, 2, vec![10, 15]), (6, 1, vec![15, 16]), (1, 1, vec![15, 16])]
    {
        assert!(fits(&slots, second, Cost::slot(id)), "{second}");
        slots = kernel.record(slots, at(second, Cost::slot(id)));
        assert_eq!(seconds(&slots, second), ends, "{second}");
    }
    assert!(slots.capacity() >= 2 && kernel.unused_from_us(&slots) == us(16));
    assert!(!fits(&slots, 14, Cost::slot(3)) && !fits(&slots, 14, Cost::PEEK), "no slot is free");
    assert!(fits(&slots, 14, Cost::renewal(2)) && fits(&slots, 15, Cost::slot(3)));
    let reading = kernel.reading(Some(&slots), us(14));
    assert_eq!(reading, SlotsReading { open: 2, frees_us: us(15), last_us: us(16), removed: 0 });
    let report = |verdict| {
        let report = kernel.report(reading, us(14), verdict);
        let waits = [report.next_after_us, report.reset_after_us, report.until_reset_us];
        (report.remaining, report.retry_after, waits.map(|wait_us| wait_us / SECOND_US))
    };
    assert_eq!(report(Verdict::Over), (0, RetryAfter::In(SECOND_US), [1, 2, 1]));
    assert_eq!(report(Verdict::Fits), (0, RetryAfter::Now, [1, 2, 2]));
    let removed = |second, cost| {
        let slots = kernel.record(slots.clone(), at(second, cost));
        kernel.reading(Some(&slots), us(second)).removed
    };
    let release = |id| Cost::undo(1, Grant { id, limit: None });
    assert_eq!([removed(15, release(1)), removed(16, release(1)), removed(16, Cost::slot(3))], [1, 0, 2]);
}

#[test]
fn states_that_a_clock_or_another_limit_left_behind_are_read_as_documented() {
    let gcra = Gcra::new(30, SECOND_US, 9, Pacing::Meter);
    assert_eq!(gcra.denominator, 3, "reduced");
    let tat = |whole_us, fraction| Tat { whole_us, fraction };
    assert_eq!([2, 3].map(|fraction| gcra.load(Some(tat(7, fraction)))), [tat(7, 2), tat(8, 0)]);
    assert_eq!(gcra.minus(tat(7, 2), tat(7, 2)), Some(tat(0, 0)));
    let year_us = 366 * 86_400 * SECOND_US;
    let slow = Gcra::new(1, year_us, 9, Pacing::Meter);
    assert_eq!(
        slow.drain_of_grant(18, Grant { id: T0, limit: None }),
        tat(18 * year_us, 0),
        "twice the burst"
    );
    let window = SlidingWindow::new(5, SECOND_US);
    let empty = |index| BucketState { index, current: 0, previous: 0 };
    assert_eq!(window.advanced_to(Some(empty(9)), 5 * SECOND_US), empty(5), "nothing keeps a later window");
    let bucket = IntervalBucket::new(5, 5, SECOND_US);
    let unused_from_us = |tokens| bucket.unused_from_us(TokenState { tokens, start_us: T0 });
    assert_eq!([5, 4].map(unused_from_us), [0, T0 + SECOND_US]);
    let never = Attempt { now_us: T0 + 300_000, cost: Cost::take(9) };
    let until_reset_us =
        |tokens| bucket.report(TokenState { tokens, start_us: T0 }, never, Verdict::Over).until_reset_us;
    assert_eq!([5, 4].map(until_reset_us), [SECOND_US, 700_000], "a full bucket starts its interval now");
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
    assert_eq!((Pacing::Meter.into_str(), Pacing::Queue.into_str()), ("meter", "queue"));
}
