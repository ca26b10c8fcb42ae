//! Grants that stand at the same time are undone in any order. With GCRA, an undo may return the refill of the time for
//! which its grant stood: the grant was added to one that is undone before it. No other kernel returns too much.

use engine::algorithm::{Gcra, Kernel};
use engine::{Cost, Outcome, Pacing};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::redis::lua_twin::strategies::{everyday, small};
use crate::redis::undo::{Comparable, Fixture, TimeStep, Units, request, time_step};
use crate::support::properties;

/// A minute boundary.
const START_US: u64 = 1_700_000_040_000_000;

/// A step of a story of several grants that stand at the same time and are undone.
#[derive(Clone, Debug)]
enum Event {
    /// A request that stays.
    Stays(Units),
    /// A request to undo later.
    Granted(Units),
    /// The undo of one of the grants.
    Undone(usize),
}

fn event() -> impl Strategy<Value = (TimeStep, Event)> {
    let event = prop_oneof![
        3 => request().prop_map(|(_, units)| Event::Stays(units)),
        4 => request().prop_map(|(_, units)| Event::Granted(units)),
        4 => (0..8_usize).prop_map(Event::Undone),
    ];
    (time_step(), event)
}

fn undo_several(fixture: &Fixture, kernel: Kernel, story: &[(TimeStep, Event)]) -> Result<(), TestCaseError> {
    let mut counters = fixture.counters(kernel);
    let mut standing: Vec<(u64, Cost, Outcome)> = Vec::new();
    for (step, event) in story {
        match event {
            Event::Stays(units) => {
                if counters.send_to_both(step, units.cost(&kernel))? == Comparable::No {
                    return Ok(());
                }
            }
            Event::Granted(units) => {
                counters.now_us += counters.undone.step_us(step);
                let cost = units.cost(&kernel);
                standing.push((counters.now_us, cost, counters.undone.decide(counters.now_us, cost)));
            }
            Event::Undone(which) if !standing.is_empty() => {
                counters.now_us += counters.undone.step_us(step);
                let (granted_us, cost, granted) = standing.remove(which % standing.len());
                counters.undone.undo(counters.now_us, cost, granted);
                if let Kernel::Gcra(_) = kernel {
                    counters.tolerated.us = counters.tolerated.us.max(counters.now_us - granted_us);
                }
            }
            Event::Undone(_) => {}
        }
        counters.check_remaining()?;
    }
    Ok(())
}

fn check_several(kernels: impl Strategy<Value = Kernel>) {
    let fixture = Fixture::start();
    let result = properties::runner(file!())
        .run(&(kernels, vec(event(), 1..24)), |(kernel, story)| undo_several(&fixture, kernel, &story));
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn undos_of_small_grants_that_stood_together_return_at_most_one_refill() {
    check_several(small(1));
}

#[test]
fn undos_of_everyday_grants_that_stood_together_return_at_most_one_refill() {
    check_several(everyday(1));
}

/// The case in which an undo returns too much, as little as it is: 5 us here, the refill while the second grant stood.
#[test]
fn a_grant_on_top_of_a_grant_that_is_undone_returns_the_refill_too() {
    let fixture = Fixture::start();
    let mut counters = fixture.counters(Kernel::Gcra(Gcra::new(1_000_000, 1_000_000, 100, Pacing::Meter)));
    let cost = Cost::take(10);
    let [first, second] = [(); 2].map(|()| counters.undone.decide(START_US, cost));
    counters.undone.undo(START_US, cost, first);
    counters.send_to_both(&TimeStep::Us(5), cost).expect("both admit it");
    counters.undone.undo(counters.now_us, cost, second);
    let (undone, never) = counters.peeks();
    assert_eq!((undone.report.reset_after_us, never.report.reset_after_us), (5, 10));
}
