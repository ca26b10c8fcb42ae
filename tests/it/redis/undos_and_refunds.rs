//! Requests take units and give them back, while others reserve units that are undone: at every moment a counter has
//! exactly the units that are held, and at the end none.

use engine::algorithm::{CalendarWindow, Kernel};
use engine::{Cost, Outcome, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::redis::lua_twin::strategies::kernel;
use crate::redis::undo::{Counter, Fixture, Units, request};
use crate::support::properties;

/// A minute boundary.
const START_US: u64 = 1_700_000_040_000_000;

#[derive(Clone, Debug)]
enum Event {
    Take(Units),
    Reserve(Units),
    /// Gives back one of the grants.
    Return(usize),
}

/// Units that are held, until they are given back or undone.
struct Held {
    cost: Cost,
    granted: Outcome,
    is_reserved: bool,
}

struct Story<'s> {
    counter: Counter<'s>,
    kernel: Kernel,
    held: Vec<Held>,
    now_us: u64,
}

/// Each event is some microseconds after the one before: no window ends, and no interval.
fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let units = || request().prop_map(|(_, units)| units);
    let event = prop_oneof![
        4 => units().prop_map(Event::Take),
        3 => units().prop_map(Event::Reserve),
        5 => (0..16_usize).prop_map(Event::Return),
    ];
    vec((0..30_u64, event), 1..32)
}

impl Story<'_> {
    fn play(&mut self, event: &Event) -> Result<(), TestCaseError> {
        let is_reserved = matches!(event, Event::Reserve(_));
        match event {
            Event::Take(units) | Event::Reserve(units) => {
                let cost = units.cost(&self.kernel);
                let granted = self.counter.decide(self.now_us, cost);
                if granted.verdict == Verdict::Fits {
                    self.held.push(Held { cost, granted, is_reserved });
                }
            }
            Event::Return(which) if !self.held.is_empty() => self.give_back(which % self.held.len()),
            Event::Return(_) => {}
        }
        self.check_held()
    }

    fn give_back(&mut self, index: usize) {
        let Held { cost, granted, is_reserved } = self.held.remove(index);
        let answer = if is_reserved {
            self.counter.undo(self.now_us, cost, granted)
        } else {
            self.counter.decide(self.now_us, Cost::refund(cost.taken()))
        };
        assert_eq!(answer.verdict, Verdict::Fits, "{cost:?} cannot be given back");
    }

    fn check_held(&self) -> Result<(), TestCaseError> {
        let held: u64 = self.held.iter().map(|held| held.cost.taken()).sum();
        let left = self.kernel.max_cost().checked_sub(held).expect("no more is held than the limit");
        let remaining = self.counter.decide(self.now_us, Cost::PEEK).report.remaining;
        // GCRA keeps the time since an undone grant, which is less than a unit.
        let most_lost = u64::from(matches!(self.kernel, Kernel::Gcra(_)));
        prop_assert!(
            (left.saturating_sub(most_lost)..=left).contains(&remaining),
            "{} units are left, not {}, at {}",
            remaining,
            left,
            self.now_us
        );
        Ok(())
    }
}

#[test]
fn a_counter_is_unused_when_all_units_are_given_back_or_undone() {
    let fixture = Fixture::start();
    let kernels = kernel(1..20_u64, Just(60_000_000_u64)).prop_map(|kernel| match kernel {
        Kernel::CalendarWindow(k) => {
            let boundaries = [0, 1, 2].map(|minutes| START_US + minutes * 60_000_000);
            Kernel::CalendarWindow(CalendarWindow::new(k.limit(), boundaries))
        }
        kernel => kernel,
    });
    let result = properties::runner(file!()).run(&(kernels, events()), |(kernel, events)| {
        let mut story =
            Story { counter: fixture.counter(kernel), kernel, held: Vec::new(), now_us: START_US };
        for (step_us, event) in &events {
            story.now_us += step_us;
            story.play(event)?;
        }
        while !story.held.is_empty() {
            story.play(&Event::Return(story.now_us as usize))?;
        }
        // GCRA gets back the time that it has kept.
        story.now_us += story.now_us - START_US;
        let report = story.counter.decide(story.now_us, Cost::PEEK).report;
        prop_assert_eq!((report.remaining, report.reset_after_us), (kernel.max_cost(), 0));
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
