//! Which grants of a sliding log an undo removes, when refunds have removed others, and when it cannot remove any.

use engine::algorithm::{CounterReading, Kernel, LogReading, SlidingLog};
use engine::{Cost, CounterSnapshot, DecidedBy, Outcome, Verdict};

use crate::redis::undo::Fixture;

/// A minute boundary.
const START_US: u64 = 1_700_000_040_000_000;

const WINDOW_US: u64 = 1_000;

#[derive(Clone, Copy)]
enum Step {
    Take(u64),
    /// To be undone at the end.
    Reserve(u64),
    Refund(u64),
    /// Many microseconds pass.
    Wait(u64),
}

use Step::{Refund, Reserve, Take, Wait};

/// The units that are used after these steps, a microsecond each, and after the undo; and how long the newest one stays
/// then, from the first step on.
fn after_the_undo(fixture: &Fixture, steps: &[Step]) -> (u64, u64) {
    let counter = fixture.counter(Kernel::SlidingLog(SlidingLog::new(100, WINDOW_US)));
    let (mut now_us, mut reserved) = (START_US, None);
    for step in steps {
        now_us += 1;
        match *step {
            Take(units) => drop(counter.decide(now_us, Cost::take(units))),
            Reserve(units) => {
                reserved = Some((Cost::take(units), counter.decide(now_us, Cost::take(units))));
            }
            Refund(units) => drop(counter.decide(now_us, Cost::refund(units))),
            Wait(us) => now_us += us,
        }
    }
    let (cost, granted) = reserved.expect("a reservation");
    let undone = counter.undo(now_us, cost, granted);
    assert_eq!(undone.verdict, Verdict::Fits);
    let report = counter.decide(now_us, Cost::PEEK).report;
    assert_eq!(undone.report.remaining, report.remaining);
    let newest_us = (now_us + report.reset_after_us).saturating_sub(START_US + WINDOW_US);
    (100 - report.remaining, if report.remaining == 100 { 0 } else { newest_us })
}

#[test]
fn an_undo_removes_what_a_refund_has_left_in_the_place_of_the_grant() {
    let fixture = Fixture::start();
    let rows: [(&str, &[Step], (u64, u64)); 9] = [
        ("the refund removed the grant", &[Take(1), Reserve(1), Refund(1)], (0, 0)),
        ("a later grant stays", &[Take(1), Reserve(1), Refund(1), Take(1)], (1, 4)),
        ("a part of the grant", &[Take(3), Reserve(3), Refund(2)], (1, 1)),
        ("the grant and a part of the one before", &[Take(4), Reserve(2), Refund(3)], (1, 1)),
        ("the refund removed a later grant", &[Take(1), Reserve(2), Take(3), Refund(3)], (1, 1)),
        ("several earlier grants", &[Take(1), Take(1), Take(1), Reserve(2), Refund(2), Take(1)], (2, 6)),
        ("no refund", &[Take(1), Reserve(1), Take(1)], (2, 3)),
        ("the log was emptied and used again", &[Reserve(1), Refund(5), Take(2)], (2, 3)),
        (
            "the earlier grant has left the window",
            &[Take(1), Reserve(1), Refund(1), Wait(996), Take(1)],
            (1, 1_001),
        ),
    ];
    for (case, steps, expected) in rows {
        assert_eq!(after_the_undo(&fixture, steps), expected, "{case}");
    }
}

#[test]
fn an_undo_after_many_grants_is_dropped_and_reported() {
    let fixture = Fixture::start();
    for (others, remaining, verdict) in [(63, 37, Verdict::Fits), (64, 35, Verdict::Over)] {
        let counter = fixture.counter(Kernel::SlidingLog(SlidingLog::new(100, 1_000_000)));
        let granted = counter.decide(START_US, Cost::take(1));
        for other in 1..=others {
            counter.decide(START_US + other, Cost::take(1));
        }
        let undone = counter.undo(START_US + others, Cost::take(1), granted);
        let answer = (undone.report.remaining, undone.verdict);
        assert_eq!(answer, (remaining, verdict), "after {others} other grants");
        // A grant that the log no longer has needs no undo.
        let DecidedBy::Store(snapshot) = granted.decided_by else {
            panic!("not from the store: {granted:?}")
        };
        let CounterReading::Log(log) = snapshot.reading else { panic!("not a log: {granted:?}") };
        let earlier = CounterReading::Log(LogReading { newest_us: START_US - 1, ..log });
        let gone = Outcome {
            decided_by: DecidedBy::Store(CounterSnapshot { reading: earlier, ..snapshot }),
            ..granted
        };
        assert_eq!(counter.undo(START_US + others, Cost::take(1), gone).verdict, Verdict::Fits);
    }
}
