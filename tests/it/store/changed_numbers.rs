//! Known answers of counters whose limit gets another number: windows keep the used units, GCRA and buckets the used
//! share. The stories compare changed numbers with the model on every store.

use ::base::clock::SystemClock;
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::algorithm::{FixedWindow, Gcra, Kernel, SlidingLog, SlidingWindow};
use engine::{Cost, Outcome, Pacing, RetryAfter, Verdict};

use crate::redis::one_charge;

/// A minute boundary.
const T0_US: u64 = 1_700_000_040_000_000;
const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;

/// The number of every limit per minute, and of every burst, with a cost in units: 0 is a check. The answers of fixed
/// window, sliding window, GCRA and sliding log are the remaining units and the seconds until the counter is unused,
/// then `r` with the seconds until the same cost fits.
struct Row {
    at_s: u64,
    limit: u64,
    units: u64,
    answers: [&'static str; 4],
}

const fn row(at_s: u64, limit: u64, units: u64, answers: [&'static str; 4]) -> Row {
    Row { at_s, limit, units, answers }
}

const TABLE: [Row; 9] = [
    row(0, 10, 6, ["OK 4/60", "OK 4/120", "OK 4/36", "OK 4/60"]),
    // The limit becomes 20.
    row(1, 20, 0, ["OK 14/59", "OK 14/119", "OK 8/35", "OK 14/59"]),
    row(2, 20, 14, ["OK 0/58", "OK 0/118", "OVER 8/34 r16", "OK 0/60"]),
    row(3, 20, 1, ["OVER 0/57 r57", "OVER 0/117 r60", "OK 8/36", "OVER 0/59 r57"]),
    // The limit becomes 4, which is less than what is used.
    row(4, 4, 0, ["OVER 0/56 r56", "OVER 0/116 r107", "OK 1/35", "OVER 0/58 r58"]),
    row(5, 4, 1, ["OVER 0/55 r55", "OVER 0/115 r106", "OK 0/49", "OVER 0/57 r57"]),
    // The limit is what it was.
    row(6, 10, 0, ["OVER 0/54 r54", "OVER 0/114 r87", "OK 2/48", "OVER 0/56 r56"]),
    row(61, 10, 0, ["OK 10/0", "OVER 0/59 r32", "OK 10/0", "OVER 0/1 r1"]),
    row(61, 10, 4, ["OK 6/59", "OVER 0/59 r41", "OK 6/24", "OVER 0/1 r1"]),
];

fn kernels(limit: u64) -> [(&'static str, Kernel); 4] {
    [
        ("fixed window", Kernel::FixedWindow(FixedWindow::new(limit, MINUTE_US))),
        ("sliding window", Kernel::SlidingWindow(SlidingWindow::new(limit, MINUTE_US))),
        ("gcra", Kernel::Gcra(Gcra::new(limit, MINUTE_US, limit, Pacing::Meter))),
        ("sliding log", Kernel::SlidingLog(SlidingLog::new(limit, MINUTE_US))),
    ]
}

fn text(outcome: &Outcome) -> String {
    let report = &outcome.report;
    let seconds = |us: u64| us as f64 / 1e6;
    let code = if outcome.verdict == Verdict::Fits { "OK" } else { "OVER" };
    let retry = match report.retry_after {
        RetryAfter::In(us) => format!(" r{}", seconds(us)),
        RetryAfter::Now | RetryAfter::Never => String::new(),
    };
    format!("{code} {}/{}{retry}", report.remaining, seconds(report.reset_after_us))
}

#[test]
fn what_was_used_stays_used() {
    let store = MemoryStore::new(MemoryOptions::default(), SystemClock);
    for (number, Row { at_s, limit, units, answers }) in TABLE.iter().enumerate() {
        for ((name, kernel), answer) in kernels(*limit).into_iter().zip(answers) {
            let charges = one_charge(kernel, name, Cost::take(*units));
            let outcomes = store.decide_at(&charges, T0_US + at_s * SECOND_US);
            let found = text(&outcomes.by_charge[0]);
            assert_eq!(found, *answer, "{name}, row {}", number + 1);
        }
    }
}
