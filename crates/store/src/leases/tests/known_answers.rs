//! Known answers: what two processes answer, what the store counts and what a process holds after each step.

use engine::algorithm::{FixedWindow, Gcra, IntervalBucket, SlidingWindow};
use engine::{Pacing, Verdict};

use super::*;

const SECOND_US: u64 = 1_000_000;
const KEY: &str = "{key}";

/// Time in milliseconds, process, step, answer, counter, units that process A or B holds.
type Row = (u64, char, Step, &'static str, &'static str, u64);

#[derive(Clone, Copy, Debug)]
enum Step {
    Hit(u64),
    Peek,
    NegativeHits(u64),
    Ask(u64),
    /// The process is idle.
    Return,
}

use Step::{Ask, Hit, NegativeHits, Peek, Return};

fn answer(process: &Process, kernel: Kernel, charging: Charging, step: Step) -> String {
    let cost = match step {
        Hit(units) => Cost::take(units),
        Peek => Cost::PEEK,
        NegativeHits(units) => Cost::refund(units),
        Ask(units) => {
            let is_granted = process.ask(KEY, kernel, units);
            return if is_granted { "granted" } else { "refused" }.to_owned();
        }
        Return => {
            let before = all_units(&process.leases.stats()).returned;
            process.give_all_back();
            let returned = all_units(&process.leases.stats()).returned - before;
            return format!("{returned} returned");
        }
    };
    let hit = super::Hit { key: KEY, kernel, cost, charging, role: Role::Enforce };
    let outcome = process.decide(&[hit]).by_charge[0];
    let verdict = if outcome.verdict == Verdict::Fits { "OK" } else { "OVER" };
    let from = if matches!(outcome.decided_by, DecidedBy::Lease(_)) { 'L' } else { 'R' };
    format!("{verdict} {from} {}", outcome.report.remaining)
}

fn check(kernel: Kernel, charging: Charging, rows: &[Row]) {
    let clock = Arc::new(ManualClock::default());
    let memory = memory(&clock);
    let processes = [Process::new(&memory, &clock), Process::new(&memory, &clock)];
    for &(at_ms, who, step, expected, counted, held) in rows {
        clock.set(at_ms * 1_000);
        let process = &processes[usize::from(who == 'B')];
        let found = answer(process, kernel, charging, step);
        // Of A unless the row is about B: what A holds does not change while B acts.
        let holds = process.leases.held(KEY);
        let found = (found, counter(&memory, KEY, kernel), holds);
        assert_eq!(found, (expected.to_owned(), counted.to_owned(), held), "at {at_ms} ms: {who} {step:?}");
    }
    for process in &processes {
        let stats = process.leases.stats();
        let units = all_units(&stats);
        assert_eq!(units.granted, units.spent + units.returned + units.lapsed + stats.held, "{stats:?}");
    }
}

#[test]
fn a_fixed_window_prepaid() {
    let kernel = Kernel::FixedWindow(FixedWindow::new(100, SECOND_US));
    let rows: [Row; 20] = [
        (0, 'A', Hit(1), "OK R 99", "0:1", 0),
        (0, 'A', Ask(20), "granted", "0:21", 20),
        (5, 'A', Hit(1), "OK L 98", "0:21", 19),
        (6, 'B', Hit(1), "OK R 78", "0:22", 0),
        (7, 'A', Hit(19), "OK L 79", "0:22", 0),
        (8, 'A', Hit(1), "OK R 77", "0:23", 0),
        (9, 'A', Ask(30), "granted", "0:53", 30),
        (9, 'B', Ask(40), "granted", "0:93", 40),
        (10, 'B', Ask(10), "refused", "0:93", 40),
        (11, 'B', Hit(5), "OK L 42", "0:93", 35),
        // A did not hear of B's units.
        (13, 'A', Hit(12), "OK L 65", "0:93", 18),
        (14, 'A', Peek, "OK L 65", "0:93", 18),
        (15, 'B', NegativeHits(2), "OK R 9", "0:91", 35),
        // 18 of A's units, and 12 that do not fit.
        (16, 'A', Hit(30), "OVER R 27", "0:91", 18),
        // 18 of A's units, and 7 from the store.
        (16, 'A', Hit(25), "OK R 2", "0:98", 0),
        (17, 'A', Ask(2), "granted", "0:100", 2),
        (900, 'A', Return, "2 returned", "0:98", 0),
        (950, 'A', Ask(2), "granted", "0:100", 2),
        (1_000, 'A', Hit(1), "OK R 99", "1:1", 2),
        // Another window.
        (1_001, 'A', Return, "0 returned", "1:1", 0),
    ];
    check(kernel, Charging::Prepaid, &rows);
}

#[test]
fn a_fixed_window_postpaid() {
    let kernel = Kernel::FixedWindow(FixedWindow::new(10, SECOND_US));
    let rows: [Row; 5] = [
        (2_000, 'A', Ask(6), "granted", "2:6", 6),
        (2_001, 'A', Hit(4), "OK L 6", "2:6", 2),
        // 2 of A's units, and 1 from the store.
        (2_002, 'A', Hit(3), "OK R 3", "2:7", 0),
        // Recorded.
        (2_003, 'B', Hit(5), "OVER R 0", "2:12", 0),
        (2_004, 'A', Hit(2), "OVER R 0", "2:14", 0),
    ];
    check(kernel, Charging::Postpaid, &rows);
}

#[test]
fn gcra_with_a_burst_of_50() {
    let kernel = Kernel::Gcra(Gcra::new(100, SECOND_US, 50, Pacing::Meter));
    let rows: [Row; 13] = [
        (10_000, 'A', Ask(20), "granted", "10200", 20),
        (10_000, 'A', Hit(5), "OK L 45", "10200", 15),
        (10_100, 'A', Hit(1), "OK L 49", "10200", 9),
        (10_101, 'A', Hit(1), "OK L 48", "10200", 8),
        (10_195, 'A', Hit(1), "OK R 48", "10210", 0),
        (10_195, 'A', Hit(3), "OK R 45", "10240", 0),
        (10_200, 'B', Hit(50), "OVER R 46", "10240", 0),
        (20_000, 'A', Ask(10), "granted", "20100", 10),
        (20_000, 'B', Hit(40), "OK R 0", "20500", 0),
        // A did not hear of B's hit.
        (20_030, 'A', Hit(5), "OK L 45", "20500", 2),
        // 2 of A's units, and 1 from the store.
        (20_060, 'A', Hit(3), "OK R 5", "20510", 0),
        (20_060, 'A', Hit(2), "OK R 3", "20530", 0),
        // Places pass.
        (20_100, 'A', Return, "0 returned", "20530", 0),
    ];
    check(kernel, Charging::Prepaid, &rows);
}

#[test]
fn a_sliding_window() {
    let kernel = Kernel::SlidingWindow(SlidingWindow::new(10, SECOND_US));
    let rows: [Row; 5] = [
        (3_500, 'A', Ask(6), "granted", "3:6:0", 6),
        (3_600, 'A', Hit(2), "OK L 8", "3:6:0", 4),
        // The grant's window is over.
        (4_000, 'A', Hit(1), "OK R 3", "4:1:6", 4),
        // To the previous bucket.
        (4_001, 'A', Return, "4 returned", "4:1:2", 0),
        (4_002, 'B', Hit(7), "OK R 0", "4:8:2", 0),
    ];
    check(kernel, Charging::Prepaid, &rows);
}

#[test]
fn a_bucket_that_refills_once_per_interval() {
    let kernel = Kernel::IntervalBucket(IntervalBucket::new(10, 5, SECOND_US));
    let rows: [Row; 3] = [
        (5_200, 'A', Ask(6), "granted", "4 from 5200", 6),
        (6_199, 'A', Hit(2), "OK L 8", "4 from 5200", 4),
        // The tokens have come, so the places have ended.
        (6_200, 'A', Hit(1), "OK R 8", "8 from 6200", 4),
    ];
    check(kernel, Charging::Prepaid, &rows);
}
