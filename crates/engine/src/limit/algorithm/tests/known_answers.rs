//! Tables of known answers: `offset_us, cost -> fits, remaining/retry_after/reset_after/next_after`, -1 = never.

use super::testing::{Counter, T0};
use crate::limit::algorithm::{FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow};
use crate::{Charging, Pacing, Verdict};

type Row = (u64, u64, bool, [i64; 4]);

fn check(charging: Charging, kernel: Kernel, rows: &[Row]) {
    let mut counter = Counter { charging, ..Counter::new(kernel) };
    for (number, &(offset_us, cost, fits, expected)) in rows.iter().enumerate() {
        let (verdict, report) = counter.take(T0 + offset_us, cost);
        let retry = report.retry_after.us().map_or(-1, u64::cast_signed);
        let seen = [
            report.remaining.cast_signed(),
            retry,
            report.reset_after_us.cast_signed(),
            report.next_after_us.cast_signed(),
        ];
        assert_eq!((verdict == Verdict::Fits, seen), (fits, expected), "{kernel}, row {number}");
    }
}

fn prepaid(kernel: Kernel, rows: &[Row]) {
    check(Charging::Prepaid, kernel, rows);
}

#[test]
fn fixed_window_10_per_second() {
    prepaid(
        Kernel::FixedWindow(FixedWindow::new(10, 1_000_000)),
        &[
            (0, 4, true, [6, 0, 1_000_000, 1_000_000]),
            (1, 7, false, [6, 999_999, 999_999, 999_999]), // a denial takes nothing
            (2, 6, true, [0, 0, 999_998, 999_998]),
            (4, 11, false, [0, -1, 999_996, 999_996]), // more than the limit never fits
            (1_000_000, 1, true, [9, 0, 1_000_000, 1_000_000]), // the next window is unused
            (900_000, 9, true, [0, 0, 1_100_000, 1_100_000]), // the clock stepped back: still the later window
        ],
    );
}

#[test]
fn sliding_log_3_per_10_seconds() {
    prepaid(
        Kernel::SlidingLog(SlidingLog::new(3, 10_000_000)),
        &[
            (0, 1, true, [2, 0, 10_000_000, 10_000_000]),
            (1_000_000, 1, true, [1, 0, 10_000_000, 9_000_000]),
            (2_000_000, 1, true, [0, 0, 10_000_000, 8_000_000]),
            (3_000_000, 1, false, [0, 7_000_000, 9_000_000, 7_000_000]),
            (9_999_999, 1, false, [0, 1, 2_000_001, 1]),
            (10_000_000, 1, true, [0, 0, 10_000_000, 1_000_000]), // exactly one window later is another window
        ],
    );
}

#[test]
fn sliding_window_50_per_minute() {
    prepaid(
        Kernel::SlidingWindow(SlidingWindow::new(50, 60_000_000)),
        &[
            (10_000_000, 42, true, [8, 0, 110_000_000, 51_428_572]),
            (65_000_000, 11, true, [0, 0, 115_000_000, 714_286]),
            (75_000_000, 7, true, [0, 0, 105_000_000, 714_286]),
            (75_000_000, 1, false, [0, 714_286, 105_000_000, 714_286]),
        ],
    );
}

#[test]
fn gcra_3_per_second_burst_2() {
    // The interval is 333,333 1/3 us; nothing is rounded away.
    prepaid(
        Kernel::Gcra(Gcra::new(3, 1_000_000, 2, Pacing::Meter)),
        &[
            (0, 1, true, [1, 0, 333_334, 333_334]),
            (0, 1, true, [0, 0, 666_667, 333_334]),
            (0, 1, false, [0, 333_334, 666_667, 333_334]),
            (333_333, 1, false, [0, 1, 333_334, 1]), // a third of a microsecond is missing
            (333_334, 1, true, [0, 0, 666_666, 333_333]),
            (333_334, 3, false, [0, -1, 666_666, 333_333]),
            (1_000_000, 2, true, [0, 0, 666_667, 333_334]), // after three intervals the fraction is gone again
        ],
    );
}

#[test]
fn leaky_queue_2_per_second_holds_3() {
    let kernel = Kernel::Gcra(Gcra::new(2, 1_000_000, 3, Pacing::Queue));
    let mut counter = Counter::new(kernel);
    let delays: Vec<_> = (0..3).map(|_| counter.take(T0, 1).1.delay_us).collect();
    assert_eq!(delays, [0, 500_000, 1_000_000]);
    let (verdict, report) = counter.take(T0, 1);
    assert_eq!((verdict, report.delay_us, report.retry_after.us()), (Verdict::Over, 0, Some(500_000)));
}

#[test]
fn interval_bucket_of_10_gets_4_per_second() {
    prepaid(
        Kernel::IntervalBucket(IntervalBucket::new(10, 4, 1_000_000)),
        &[
            (0, 9, true, [1, 0, 3_000_000, 1_000_000]),
            (500_000, 2, false, [1, 500_000, 2_500_000, 500_000]),
            (1_500_000, 2, true, [3, 0, 1_500_000, 500_000]), // one whole interval has passed; the next starts at its end
            (2_000_000, 7, true, [0, 0, 3_000_000, 1_000_000]),
            (2_000_000, 11, false, [0, -1, 3_000_000, 1_000_000]),
            (9_700_000, 1, true, [9, 0, 1_000_000, 1_000_000]), // full again: the next interval starts now
        ],
    );
}

#[test]
fn postpaid_records_what_does_not_fit() {
    check(
        Charging::Postpaid,
        Kernel::FixedWindow(FixedWindow::new(10, 1_000_000)),
        &[
            (0, 8, true, [2, 0, 1_000_000, 1_000_000]),
            (1, 5, false, [0, 999_999, 999_999, 999_999]), // 13 are recorded
            (2, 1, false, [0, 999_998, 999_998, 999_998]),
        ],
    );
    check(
        Charging::Postpaid,
        Kernel::Gcra(Gcra::new(10, 1_000_000, 10, Pacing::Meter)),
        &[
            (0, 25, false, [0, -1, 2_000_000, 1_100_000]), // the debt is at most one further burst
            (1_000_000, 1, false, [0, 200_000, 1_100_000, 200_000]),
        ],
    );
    check(
        Charging::Postpaid,
        Kernel::SlidingLog(SlidingLog::new(3, 10_000_000)),
        &[
            (0, 2, true, [1, 0, 10_000_000, 10_000_000]),
            (1, 9, false, [0, -1, 10_000_000, 10_000_000]), // 4 more are recorded, 6 in all
            (10_000_000, 1, false, [0, 1, 10_000_000, 1]), // 4 are still in the window, and nothing fits until they leave
        ],
    );
    check(
        Charging::Postpaid,
        Kernel::SlidingLog(SlidingLog::new(3, 10_000_000)),
        &[
            (0, 2, true, [1, 0, 10_000_000, 10_000_000]),
            (1, 3, false, [0, 10_000_000, 10_000_000, 10_000_000]), // when the first 2 leave, 3 are still too many
        ],
    );
}
