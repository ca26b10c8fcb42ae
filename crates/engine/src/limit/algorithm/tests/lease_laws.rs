//! Laws of units that processes take ahead of their requests: whatever is spent, directly or later, satisfies the bound
//! of the kernel. Each rule of the processes is needed: stories without it exceed the bound.

use super::settle_laws::{Random, excess, kernel_of};
use super::testing::{Counter, T0};
use crate::limit::algorithm::{Attempt, CounterReading, FixedWindow, Gcra, Kernel, State};
use crate::{Cost, Grant, Pacing, Verdict};

/// What the processes in a story do not obey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftOut {
    Nothing,
    /// Units are spent only in their place: these spend them for another 10 us.
    Place,
    /// Ended places are lost for good.
    LostPlace,
    /// A returned unit is not spent.
    Returned,
    /// Units that are set aside keep their places until their request is decided.
    SetAside,
}

/// Units of one charge that a process holds.
#[derive(Clone, Debug)]
struct Held {
    left: u64,
    set_aside: u64,
    granted: CounterReading,
    grant: Grant,
}

impl Held {
    fn usable(&self, kernel: &Kernel, now_us: u64, rule: LeftOut) -> u64 {
        let at_us = if rule == LeftOut::Place { now_us.saturating_sub(10) } else { now_us };
        let kept = if rule == LeftOut::SetAside { 0 } else { self.set_aside };
        kernel.usable_units(&self.granted, at_us).saturating_sub(kept)
    }

    /// Sets aside at most `units` that can be spent at `now_us`.
    fn take(&mut self, kernel: &Kernel, (now_us, units): (u64, u64), rule: LeftOut) -> u64 {
        let usable = self.usable(kernel, now_us, rule).min(self.left);
        if rule != LeftOut::LostPlace {
            self.left = usable;
        }
        let taken = usable.min(units);
        self.left -= taken;
        self.set_aside += taken;
        taken
    }

    /// Spends units that were set aside.
    fn spend(&mut self, units: u64) -> u64 {
        self.set_aside -= units;
        units
    }

    fn put_back(&mut self, kernel: &Kernel, (now_us, units): (u64, u64), rule: LeftOut) {
        self.set_aside -= units;
        let room = self.usable(kernel, now_us, rule).saturating_sub(self.left);
        self.left += units.min(room);
    }
}

/// One counter, what its processes hold, and what was spent.
struct Story {
    counter: Counter,
    random: Random,
    now_us: u64,
    rule: LeftOut,
    held: Vec<Held>,
    /// Units set aside for a request in flight: the index in `held`, the time, and the units.
    set_aside: Vec<(usize, u64, u64)>,
    spent: Vec<(u64, u64)>,
}

impl Story {
    fn new(kernel: Kernel, random: Random, rule: LeftOut) -> Self {
        let counter = Counter::new(kernel);
        Self { counter, random, now_us: T0, rule, held: Vec::new(), set_aside: Vec::new(), spent: Vec::new() }
    }

    fn any_held(&mut self) -> Option<usize> {
        let most = (self.held.len() as u64).checked_sub(1)?;
        Some(self.random.within(0..=most) as usize)
    }

    /// Usually moves on a little, sometimes to the last instant of a held place.
    fn pass_time(&mut self) {
        let kernel = self.counter.kernel;
        self.now_us += self.random.within(0..=1) * self.random.within(0..=24);
        if let Some(index) = self.any_held().filter(|_| self.random.0.is_multiple_of(3)) {
            let held = &self.held[index];
            let is_open = |us: &u64| held.usable(&kernel, *us, self.rule) >= held.left;
            self.now_us = (self.now_us..self.now_us + 100).rfind(is_open).unwrap_or(self.now_us);
        }
    }

    fn charge(&mut self, units: u64) -> bool {
        self.counter.take(self.now_us, units).0 == Verdict::Fits
    }

    fn ask(&mut self, units: u64) {
        let kernel = self.counter.kernel;
        let is_lost = self.random.within(0..=9) == 0;
        if self.charge(units) && !is_lost {
            let attempt = Attempt { now_us: self.now_us, cost: Cost::take(units) };
            let granted = kernel.reading(self.counter.state.as_ref(), attempt);
            let grant = kernel.grant(&granted, units).expect("a kernel with a counter");
            self.held.push(Held { left: units, set_aside: 0, granted, grant });
        }
    }

    /// Spends held units for a request, at a time that is never behind the counter's, and charges the rest. Only the
    /// answer of the counter can deny the request; the held units then go back.
    fn request(&mut self, index: usize, units: u64) {
        let kernel = self.counter.kernel;
        let at_us = self.now_us + self.random.within(0..=1) * self.random.within(0..=9);
        let taken = self.held[index].take(&kernel, (at_us, units), self.rule);
        if taken == units || self.charge(units - taken) {
            self.held[index].spend(taken);
            self.spent.push((self.now_us, units));
        } else {
            self.held[index].put_back(&kernel, (at_us, taken), self.rule);
        }
    }

    fn give_back(&mut self, index: usize) {
        let kernel = self.counter.kernel;
        let Held { left, grant, .. } = self.held[index];
        if !matches!(kernel, Kernel::Gcra(_)) {
            self.counter.decide(self.now_us, Cost::undo(left, grant));
        }
        if self.rule != LeftOut::Returned {
            self.held[index].left = 0;
        }
    }

    fn step(&mut self) {
        let kernel = self.counter.kernel;
        let units = self.random.within(1..=kernel.max_cost());
        match (self.random.within(0..=9), self.any_held()) {
            (0..=1, _) => {
                if self.charge(units) {
                    self.spent.push((self.now_us, units));
                }
            }
            (2..=3, _) | (_, None) => self.ask(units),
            (4..=6, Some(index)) => self.request(index, units),
            (7, Some(index)) => {
                let taken = self.held[index].take(&kernel, (self.now_us, units), self.rule);
                self.set_aside.push((index, self.now_us, taken));
            }
            (8, _) => {
                // Another limit of the request may deny it.
                let Some((index, at_us, taken)) = self.set_aside.pop() else { return };
                if self.random.within(0..=1) == 0 {
                    self.spent.push((at_us, self.held[index].spend(taken)));
                } else {
                    self.held[index].put_back(&kernel, (self.now_us, taken), self.rule);
                }
            }
            (_, Some(index)) => self.give_back(index),
        }
    }

    fn excess(mut self) -> u64 {
        for _ in 0..60 {
            self.pass_time();
            self.step();
        }
        self.check_conservation();
        self.spent.sort_unstable();
        excess(&self.counter.kernel, &self.spent)
    }

    /// A fixed window counts at least what was spent in it and what is still held.
    fn check_conservation(&self) {
        if let (Kernel::FixedWindow(k), Some(State::Window(state)), LeftOut::Nothing) =
            (self.counter.kernel, &self.counter.state, self.rule)
        {
            let is_current = |us: u64| us / k.window_us == state.index;
            let spent = self.spent.iter().filter(|(at_us, _)| is_current(*at_us)).map(|(_, units)| units);
            let held = self.held.iter().filter(|held| held.grant.id == state.index).map(|held| held.left);
            assert!(
                state.count >= spent.sum::<u64>() + held.sum::<u64>(),
                "{:?} {:?}",
                self.counter,
                self.spent
            );
        }
    }
}

const STORIES: u64 = 3_000;
/// Numbers for `kernel_of`: the algorithms that can lend.
const FIXED: u64 = 0;
const SLIDING: u64 = 1;
const GCRA: u64 = 3;
const INTERVAL: u64 = 4;
const CALENDAR: u64 = 5;

fn stories_over_the_bound(kind: u64, rule: LeftOut) -> usize {
    let story = |seed| {
        let mut random = Random(seed);
        let kernel = kernel_of(kind, &mut random);
        Story::new(kernel, random, rule).excess()
    };
    (0..STORIES).filter(|&seed| story(seed) > 0).count()
}

#[test]
fn units_taken_ahead_keep_the_bound_of_each_algorithm() {
    for kind in [FIXED, SLIDING, GCRA, INTERVAL, CALENDAR] {
        assert_eq!(stories_over_the_bound(kind, LeftOut::Nothing), 0, "kind {kind}");
    }
}

#[test]
fn each_rule_is_needed() {
    let table: [(LeftOut, &[u64]); 3] = [
        (LeftOut::Place, &[FIXED, SLIDING, GCRA, INTERVAL, CALENDAR]),
        (LeftOut::LostPlace, &[GCRA]),
        (LeftOut::Returned, &[FIXED, SLIDING, INTERVAL, CALENDAR]),
    ];
    for (rule, kinds) in table {
        for &kind in kinds {
            assert_ne!(stories_over_the_bound(kind, rule), 0, "{rule:?}, kind {kind}");
        }
    }
}

/// Later places move when earlier ones are returned, and their owner does not notice.
#[test]
fn returning_places_of_gcra_would_exceed_the_bound() {
    let kernel = Kernel::Gcra(Gcra::new(1, 1, 20, Pacing::Meter));
    let mut counter = Counter::new(kernel);
    assert_eq!(counter.take(T0, 10).0, Verdict::Fits);
    let granted = kernel.reading(counter.state.as_ref(), Attempt { now_us: T0, cost: Cost::take(10) });
    let first = kernel.grant(&granted, 10).expect("a grant");
    assert_eq!(counter.take(T0, 3).0, Verdict::Fits, "the grant of another process");
    let granted = kernel.reading(counter.state.as_ref(), Attempt { now_us: T0, cost: Cost::take(3) });
    counter.decide(T0 + 1, Cost::undo(9, first));
    let admitted = [
        (T0 + 10, counter.peek(T0 + 10).remaining),
        (T0 + 10, kernel.usable_units(&granted, T0 + 10).min(3)),
    ];
    assert_eq!((admitted, excess(&kernel, &admitted)), ([(T0 + 10, 20), (T0 + 10, 3)], 3));
}

/// A process holds 20 units, of which 5 wait for another limit. 4 are spent, and 8 places end. Then the 5 come back: if
/// they could use any place that is left, more would be spent than the bound allows.
#[test]
fn units_that_are_set_aside_keep_their_places() {
    let kernel = Kernel::Gcra(Gcra::new(1, 1, 20, Pacing::Meter));
    let excess_without = |rule| {
        let mut counter = Counter::new(kernel);
        assert_eq!(counter.take(T0, 20).0, Verdict::Fits);
        let granted = kernel.reading(counter.state.as_ref(), Attempt { now_us: T0, cost: Cost::take(20) });
        let grant = kernel.grant(&granted, 20).expect("a grant");
        let mut held = Held { left: 20, set_aside: 0, granted, grant };
        let waiting = held.take(&kernel, (T0, 5), rule);
        let four = held.take(&kernel, (T0 + 6, 4), rule);
        held.spend(four);
        held.put_back(&kernel, (T0 + 8, waiting), rule);
        let rest = held.take(&kernel, (T0 + 8, 20), rule);
        let of_counter = counter.peek(T0 + 8).remaining;
        excess(&kernel, &[(T0 + 6, four), (T0 + 8, rest), (T0 + 8, of_counter)])
    };
    assert_eq!((excess_without(LeftOut::Nothing), excess_without(LeftOut::SetAside)), (0, 2));
}

#[test]
fn places_of_gcra_end_one_after_the_other_and_those_of_a_window_together() {
    let kernel = Kernel::Gcra(Gcra::new(100, 1_000_000, 50, Pacing::Meter));
    let tat = |us| CounterReading::Tat(crate::limit::algorithm::Tat { whole_us: T0 + us, fraction: 0 });
    let usable = |us| kernel.usable_units(&tat(200_000), T0 + us);
    assert_eq!([0, 1, 100_000, 100_001, 190_000, 190_001, 300_000].map(usable), [20, 19, 10, 9, 1, 0, 0]);
    assert_eq!(kernel.given_back(tat(200_000), 9), tat(110_000));
    let queue = Kernel::Gcra(Gcra::new(100, 1_000_000, 50, Pacing::Queue));
    assert_eq!(queue.usable_units(&tat(200_000), T0), 0);
    let kernel = Kernel::FixedWindow(FixedWindow::new(10, 1_000_000));
    let reading = kernel.reading(None, Attempt { now_us: T0, cost: Cost::take(1) });
    assert_eq!(
        [0, 999_999, 1_000_000].map(|us| kernel.usable_units(&reading, T0 + us)),
        [u64::MAX, u64::MAX, 0]
    );
}
