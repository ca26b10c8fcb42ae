//! Undos of grants: stories of one counter with takes, refunds and undos of earlier grants, some of them twice, long
//! after, or of a grant that never was.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::algorithm::Kernel;
use engine::{Charge, Charges, Charging, Cost, DecidedBy, Grant, Outcomes, Role};
use proptest::collection::vec;
use proptest::prelude::*;

use super::sequence::{NumberChange, TimeStep};
use super::strategies::{changes, everyday, largest, small, time_step};
use super::{Fixture, Model, START_US, Step, assert_ttls};
use crate::redis::lua_twin::sequence::Sequence;
use crate::redis::one_charge;
use crate::support::properties;

/// What is charged, with a share of the limit.
#[derive(Clone, Debug)]
enum Event {
    Take(f64),
    /// In any case.
    Record(f64),
    Refund(f64),
    /// Gives a share of the grant back that is this many grants old.
    Undo {
        back: usize,
        share: f64,
    },
    /// Gives units back to a grant of this id, relative to the time or to the index of the window.
    UndoUnknown {
        id: i64,
        share: f64,
    },
}

/// A grant of the counter, and its units.
type Granted = (Grant, u64);

const UNKNOWN: Grant = Grant { id: 0, limit: None };

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (0.0..0.6).prop_map(Event::Take),
        1 => (0.0..1.2).prop_map(Event::Record),
        1 => (0.0..0.5).prop_map(Event::Refund),
        8 => (0..4_usize, 0.0..1.2).prop_map(|(back, share)| Event::Undo { back, share }),
        1 => (-3..3_i64, 0.0..1.2).prop_map(|(id, share)| Event::UndoUnknown { id, share }),
    ]
}

fn part(whole: u64, share: f64) -> u64 {
    (share * whole as f64) as u64 + 1
}

/// The id of a grant at this time, which this many windows or microseconds away.
fn id_near(kernel: &Kernel, now_us: u64, away: i64) -> u64 {
    let near = match kernel {
        Kernel::FixedWindow(k) => now_us / k.window_us(),
        Kernel::SlidingWindow(k) => now_us / k.window_us(),
        _ => now_us,
    };
    near.saturating_add_signed(away)
}

fn request(kernel: Kernel, key: &str, event: &Event, grants: &[Granted], now_us: u64) -> Charges {
    let most = kernel.max_cost();
    let (cost, charging, role) = match *event {
        Event::Take(share) => (Cost::take(part(most, share)), Charging::Prepaid, Role::Enforce),
        Event::Record(share) => (Cost::take(part(most, share)), Charging::Postpaid, Role::Settle),
        Event::Refund(share) => (Cost::refund(part(most, share)), Charging::Prepaid, Role::Enforce),
        Event::Undo { back, share } => {
            let (grant, units) = grants.iter().rev().nth(back).copied().unwrap_or((UNKNOWN, 1));
            (Cost::undo(part(units, share), grant), Charging::Postpaid, Role::Settle)
        }
        Event::UndoUnknown { id, share } => {
            let grant = Grant { id: id_near(&kernel, now_us, id), ..UNKNOWN };
            (Cost::undo(part(most, share), grant), Charging::Postpaid, Role::Settle)
        }
    };
    let mut charges = Charges::default();
    let charge = one_charge(kernel, key, cost).charge(0).clone();
    charges.push(Charge { charging, role, ..charge }, |text| text.push_str(key));
    charges
}

/// The grant that a request has got, if it has.
fn grant(charges: &Charges, outcomes: &Outcomes) -> Option<Granted> {
    let (charge, outcome) = (charges.charge(0), outcomes.by_charge[0]);
    let DecidedBy::Store(snapshot) = outcome.decided_by else { return None };
    let units = charge.cost.taken();
    if units == 0 || !charge.is_recorded(outcome.verdict, false) {
        return None;
    }
    Some((charge.kernel.grant(&snapshot.reading, units)?, units))
}

/// The events on one counter, whose limit changes between them.
fn steps(kernel: Kernel, changes: Vec<NumberChange>, events: &[(TimeStep, Event)], case: u64) -> Vec<Step> {
    let (mut model, mut now_us, mut last, mut grants) =
        (Model::default(), START_US, Outcomes::default(), Vec::new());
    let changes = changes.into_iter().map(|change| NumberChange { counter: 0, ..change }).collect();
    let counter = Sequence { kernels: vec![kernel], changes, batches: Vec::new() };
    let step = |(index, (time_step, event)): (usize, &(TimeStep, Event))| {
        now_us = counter.time_after(now_us, time_step, &last);
        let kernel = counter.kernel(0, index);
        let request = request(kernel, &format!("undos/{case}"), event, &grants, now_us);
        last = model.decide(&request, now_us);
        grants.extend(grant(&request, &last));
        Step { now_us, requests: vec![request], expected: vec![last.clone()] }
    };
    events.iter().enumerate().map(step).collect()
}

fn compare(kernels: impl Strategy<Value = Kernel>) {
    let (fixture, cases) = (Fixture::start(), AtomicU64::new(0));
    let kernels = kernels.prop_filter("a counter", Kernel::has_counter);
    let mut runner = properties::runner(file!());
    let stories = (kernels, changes(80), vec((time_step(), event()), 1..80));
    let result = runner.run(&stories, |(kernel, changes, events)| {
        fixture.check_steps(&steps(kernel, changes, &events, cases.fetch_add(1, Ordering::Relaxed)))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert_ttls(&fixture.redis);
}

#[test]
fn script_and_engine_undo_alike_with_small_numbers() {
    compare(small(0));
}

#[test]
fn script_and_engine_undo_alike_with_everyday_numbers() {
    compare(everyday(0));
}

#[test]
fn script_and_engine_undo_alike_with_the_largest_numbers() {
    compare(largest());
}

/// More later grants than an undo writes again.
#[test]
fn an_undo_in_a_long_log_is_made_or_not_made_alike() {
    let fixture = Fixture::start();
    let kernel = Kernel::SlidingLog(engine::algorithm::SlidingLog::new(1_000, 60_000_000));
    for later in [62, 63, 64, 65, 200] {
        let mut events = vec![(TimeStep::Us(1), Event::Take(0.1)), (TimeStep::Us(1), Event::Take(0.1))];
        events.extend((0..later).map(|_| (TimeStep::Us(1), Event::Take(0.001))));
        events.push((TimeStep::Us(1), Event::Undo { back: later, share: 0.5 }));
        events.push((TimeStep::Us(1), Event::Take(0.9)));
        let steps = steps(kernel, Vec::new(), &events, later as u64);
        fixture.check_steps(&steps).unwrap_or_else(|difference| panic!("{difference}"));
        let undone = steps[steps.len() - 2].expected[0].by_charge[0];
        assert_eq!(undone.verdict == engine::Verdict::Fits, later < 64, "{later} later grants");
    }
}
