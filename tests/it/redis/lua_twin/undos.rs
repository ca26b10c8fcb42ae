//! Known answers of undos, in the engine and in the script: what a receipt gives back, and what a denied request over
//! several slots gives back (decision 10). The sequences of the other tests have undos among other charges.

use engine::algorithm::{Gcra, Kernel, SlidingLog};
use engine::{
    Charge, Charges, Charging, Cost, CounterSnapshot, DecidedBy, Grant, Outcome, Pacing, Role, Verdict,
};

use super::{Fixture, Model, START_US, Step};
use crate::redis::one_charge;

/// One counter.
struct Counter {
    kernel: Kernel,
    key: String,
    model: Model,
    steps: Vec<Step>,
}

/// Units, and what they were granted with.
type Granted = (u64, Grant);

impl Counter {
    fn new(kernel: Kernel, name: &str) -> Self {
        Self { kernel, key: format!("undo/{name}"), model: Model::default(), steps: Vec::new() }
    }

    fn decide(&mut self, now_us: u64, cost: Cost, charging: Charging) -> Outcome {
        let charge = one_charge(self.kernel, &self.key, cost).charge(0).clone();
        let role = if charging == Charging::Postpaid { Role::Settle } else { Role::Enforce };
        let mut request = Charges::default();
        request.push(Charge { charging, role, ..charge }, |key| key.push_str(&self.key));
        let expected = vec![self.model.decide(&request, now_us)];
        let outcome = expected[0].by_charge[0];
        self.steps.push(Step { now_us, requests: vec![request], expected });
        outcome
    }

    fn take(&mut self, now_us: u64, units: u64) -> Granted {
        let outcome = self.decide(now_us, Cost::take(units), Charging::Prepaid);
        assert_eq!(outcome.verdict, Verdict::Fits);
        let DecidedBy::Store(CounterSnapshot { reading, .. }) = outcome.decided_by else {
            panic!("not from a store: {outcome:?}")
        };
        (units, self.kernel.grant(&reading, units).expect("a kernel with a counter"))
    }

    fn undo(&mut self, now_us: u64, (units, grant): Granted) -> Outcome {
        self.decide(now_us, Cost::undo(units, grant), Charging::Postpaid)
    }

    fn peek(&mut self, now_us: u64) -> Outcome {
        self.decide(now_us, Cost::PEEK, Charging::Prepaid)
    }

    /// Compares all answers with those of the script.
    fn check(&self, fixture: &Fixture) {
        fixture.check_steps(&self.steps).unwrap_or_else(|difference| panic!("{difference}"));
    }
}

#[derive(Clone, Copy)]
enum Event {
    Take(u64),
    /// To be undone at the end.
    Reserve(u64),
    Refund(u64),
    /// Many microseconds pass.
    Wait(u64),
}

use Event::{Refund, Reserve, Take, Wait};

const WINDOW_US: u64 = 1_000;

/// The units that are used after these events, a microsecond each, and after the undo; and how long the newest one
/// stays then, from the first event on.
fn after_the_undo(fixture: &Fixture, name: &str, events: &[Event]) -> (u64, u64) {
    let mut counter = Counter::new(Kernel::SlidingLog(SlidingLog::new(100, WINDOW_US)), name);
    let (mut now_us, mut reserved) = (START_US, None);
    for event in events {
        now_us += 1;
        match *event {
            Take(units) => drop(counter.take(now_us, units)),
            Reserve(units) => reserved = Some(counter.take(now_us, units)),
            Refund(units) => drop(counter.decide(now_us, Cost::refund(units), Charging::Prepaid)),
            Wait(us) => now_us += us,
        }
    }
    let undone = counter.undo(now_us, reserved.expect("a reservation"));
    assert_eq!(undone.verdict, Verdict::Fits);
    let report = counter.peek(now_us).report;
    counter.check(fixture);
    assert_eq!(undone.report.remaining, report.remaining);
    let newest_us = (now_us + report.reset_after_us).saturating_sub(START_US + WINDOW_US);
    (100 - report.remaining, if report.remaining == 100 { 0 } else { newest_us })
}

#[test]
fn an_undo_removes_what_a_refund_has_left_in_the_place_of_the_grant() {
    let fixture = Fixture::start();
    let rows: [(&str, &[Event], (u64, u64)); 9] = [
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
    for (case, events, expected) in rows {
        assert_eq!(after_the_undo(&fixture, case, events), expected, "{case}");
    }
}

/// An undo in a log writes fewer than 64 later grants again.
#[test]
fn an_undo_after_many_grants_is_dropped_and_reported() {
    let fixture = Fixture::start();
    for (others, remaining, verdict) in [(63, 37, Verdict::Fits), (64, 35, Verdict::Over)] {
        let kernel = Kernel::SlidingLog(SlidingLog::new(100, 1_000_000));
        let mut counter = Counter::new(kernel, &others.to_string());
        let granted = counter.take(START_US, 1);
        for other in 1..=others {
            counter.take(START_US + other, 1);
        }
        let undone = counter.undo(START_US + others, granted);
        assert_eq!((undone.report.remaining, undone.verdict), (remaining, verdict), "after {others} others");
        // A grant that the log no longer has needs no undo.
        let (units, grant) = granted;
        let gone = Grant { id: grant.id - 1, ..grant };
        assert_eq!(counter.undo(START_US + others, (units, gone)).verdict, Verdict::Fits);
        counter.check(&fixture);
    }
}

fn gcra(limit: u64, period_us: u64, burst: u64) -> Kernel {
    Kernel::Gcra(Gcra::new(limit, period_us, burst, Pacing::Meter))
}

#[test]
fn time_drained_since_the_grant_is_not_returned() {
    // A burst of 10, and one unit is freed every 100 us.
    let mut counter = Counter::new(gcra(10, 1_000, 10), "drained");
    let granted = counter.take(START_US, 4);
    // 250 us of the 400 us have drained. Then 3 units are taken.
    counter.take(START_US + 250, 3);
    // The counter is at 450 us then, and the undo returns 150 us.
    assert_eq!(counter.undo(START_US + 250, granted).report.reset_after_us, 300);
    counter.check(&Fixture::start());
}

/// The case in which an undo returns too much, as little as it is: 5 us here, the refill while the second grant stood.
#[test]
fn a_grant_on_top_of_a_grant_that_is_undone_returns_the_refill_too() {
    let mut counter = Counter::new(gcra(1_000_000, 1_000_000, 100), "on top");
    let [first, second] = [(); 2].map(|()| counter.take(START_US, 10));
    counter.undo(START_US, first);
    counter.take(START_US + 5, 10);
    counter.undo(START_US + 5, second);
    // The take alone would leave 10 us.
    assert_eq!(counter.peek(START_US + 5).report.reset_after_us, 5);
    counter.check(&Fixture::start());
}

/// While other requests keep the bucket from being full, time is never lost.
#[test]
fn an_undo_returns_everything_if_the_bucket_was_never_full() {
    let fixture = Fixture::start();
    for fraction in [0, 1] {
        let kernel = gcra(1_000, 1_000_000 + fraction, 100);
        let mut counter = Counter::new(kernel, &format!("never full {fraction}"));
        let mut never = Counter::new(kernel, &format!("never undone {fraction}"));
        let mut now_us = START_US;
        let mut both = |counter: &mut Counter, now_us, units| {
            counter.take(now_us, units);
            never.take(now_us, units);
        };
        both(&mut counter, now_us, 20);
        // Every 900 us one unit stays and ten are held for 300 us. One unit is freed every 1,000 us.
        for _ in 0..100 {
            now_us += 600;
            both(&mut counter, now_us, 1);
            let granted = counter.take(now_us, 10);
            now_us += 300;
            counter.undo(now_us, granted);
        }
        let lost_us = counter.peek(now_us).report.reset_after_us - never.peek(now_us).report.reset_after_us;
        assert!(lost_us <= 100 * fraction, "{lost_us} us of 100 undos");
        counter.check(&fixture);
    }
}
