//! Layer: decides hot keys from units that this process borrowed from the store ahead of the requests.
//!
//! A lease is an ordinary prepaid charge: all its units fit, or none is taken. The units are then spent on requests
//! without the store, each at most once and only in its place ([`Kernel::usable_units`]), so limits stay exact for any
//! number of processes, whatever replies are lost. Unused units of windows are returned by an undo; GCRA units lapse.
//! A failure of the store is noticed when the units are spent. Entry point: [`Leased`].
//!
//! [`Kernel::usable_units`]: engine::algorithm::Kernel::usable_units

mod lease;
mod lender;
mod sizing;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::clock::Clock;
use engine::algorithm::{Attempt, Verdict};
use engine::{
    Charge, Charges, Charging, Cost, CounterSnapshot, Outcome, Outcomes, PartialOutcomes, Report,
    Reservation, Store, StoreError,
};
use smallvec::SmallVec;

use self::lender::{Ask, Asks};
use self::table::Portion;

pub use lender::Lender;
pub use table::{ClockMargin, LeaseOptions, LeaseStats, Leases};

/// A store with the process's leases on top.
#[derive(Debug)]
pub struct Leased<S, C> {
    below: Arc<S>,
    leases: Arc<Leases>,
    /// Counts while the process or its machine stands still.
    clock: C,
    asks: Asks,
}

/// One per charge.
type Portions = SmallVec<[Portion; 2]>;

/// What the leases contribute to a request.
enum Contribution {
    Nothing,
    Whole(Outcomes),
    Part(Portions),
}

impl<S: Store, C: Clock + Clone> Leased<S, C> {
    /// Wraps `below`. Run the lender on the runtime of `below`. All layers over the same leases share the clock.
    #[must_use]
    pub fn new(below: S, leases: Arc<Leases>, clock: C) -> (Self, Lender<S, C>) {
        let below = Arc::new(below);
        let (asks, lender) = Lender::new(Arc::clone(&below), Arc::clone(&leases), clock.clone());
        (Self { below, leases, clock, asks }, lender)
    }

    fn set_aside(&self, charges: &Charges, now_us: u64) -> Contribution {
        let portions = charges.iter().enumerate().map(|(index, charge)| {
            if !charges.is_leased(index) {
                return Portion::default();
            }
            let (portion, ask) = self.leases.set_aside(charge, now_us);
            self.send(ask);
            portion
        });
        let portions: Portions = portions.collect();
        if portions.iter().all(|portion| portion.taken.outcome.is_some()) {
            self.leases.decided(&portions);
            return Contribution::Whole(
                portions.iter().filter_map(|portion| portion.taken.outcome).collect(),
            );
        }
        let is_untouched = |portion: &Portion| portion.taken.outcome.is_none() && portion.units() == 0;
        if portions.iter().all(is_untouched) { Contribution::Nothing } else { Contribution::Part(portions) }
    }

    fn send(&self, ask: Option<Ask>) {
        let Some(unsent) = ask.and_then(|ask| self.asks.try_send(ask).err()) else { return };
        let now_us = self.clock.now_us();
        self.leases.asked(&unsent.into_inner(), Err(&StoreError::Overloaded), (now_us, now_us));
    }

    /// Records the store's outcomes for `asked`, which are charges of `charges` or their rest. Units that the process
    /// holds itself are reported as free.
    fn hear(&self, charges: &Charges, asked: &Charges, outcomes: &mut Outcomes, sent_us: u64) {
        let now_us = self.clock.now_us();
        let is_denied = asked.is_denied(|index| outcomes.is_over(index));
        let mut answers = asked.iter().zip(&mut outcomes.by_charge).peekable();
        for (index, (key, charge)) in charges.iter().enumerate() {
            let Some(((_, asked), outcome)) = answers.next_if(|((asked, _), _)| *asked == key) else {
                continue;
            };
            if !charges.is_leased(index) {
                continue;
            }
            let is_recorded = asked.is_recorded(outcome.verdict, is_denied);
            let recorded = if is_recorded { asked.cost.taken() } else { 0 };
            let (own, ask) = self.leases.hear((key, charge), (outcome, recorded), (sent_us, now_us));
            self.send(ask);
            if own > 0 || asked.cost != charge.cost {
                report_whole(charge, outcome, own);
            }
        }
    }

    /// Has the store decide what the portions do not cover.
    async fn complete(
        &self,
        charges: &Charges,
        portions: Portions,
        sent_us: u64,
    ) -> Result<Outcomes, StoreError> {
        let mut set_aside = SetAside::new(&self.leases, &self.clock, charges, portions);
        let rest = charges.filter_map(|index, charge| set_aside.rest(index, charge));
        match self.below.decide(&rest).await {
            Ok(mut outcomes) => {
                if !rest.is_denied(|index| outcomes.is_over(index)) {
                    set_aside.keep();
                }
                let mut answered = outcomes.by_charge.iter();
                let is_open = |portion: &Portion| portion.taken.outcome.is_none();
                let is_over = |portion: &Portion| is_open(portion) && answered.next().is_some_and(is_over);
                set_aside.is_over = set_aside.portions.iter().map(is_over).collect();
                set_aside.finish();
                self.hear(charges, &rest, &mut outcomes, sent_us);
                Ok(set_aside.merged(charges, outcomes))
            }
            Err(error) => {
                let mut places = 0..;
                let answer = |portion: &Portion| match portion.taken.outcome {
                    Some(outcome) => Ok(outcome),
                    None => error.outcome(places.next().unwrap_or_default()).map_err(StoreError::clone),
                };
                let by_charge: Vec<_> = set_aside.portions.iter().map(answer).collect();
                set_aside.is_over =
                    by_charge.iter().map(|answer| answer.as_ref().is_ok_and(is_over)).collect();
                if let StoreError::Partial(partial) = error {
                    set_aside.below = Some(partial);
                }
                PartialOutcomes::collect(by_charge, Some(Arc::new(set_aside)))
            }
        }
    }
}

impl<S: Store, C: Clock + Clone> Store for Leased<S, C> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        if !charges.has_leased() {
            return self.below.decide(charges).await;
        }
        let sent_us = self.clock.now_us();
        let completing = match self.set_aside(charges, sent_us) {
            Contribution::Whole(outcomes) => return Ok(outcomes),
            Contribution::Nothing => None,
            // Boxed because this future would enlarge every decision's future.
            Contribution::Part(portions) => Some(Box::pin(self.complete(charges, portions, sent_us))),
        };
        if let Some(completing) = completing {
            return completing.await;
        }
        let mut outcomes = self.below.decide(charges).await?;
        self.hear(charges, charges, &mut outcomes, sent_us);
        Ok(outcomes)
    }
}

/// Reports a charge whose rest the store decided like the whole charge, and `own` units of the process as free.
fn report_whole(charge: &Charge, outcome: &mut Outcome, own: u64) {
    let Some(CounterSnapshot { now_us, reading }) = outcome.decided_by.snapshot() else { return };
    let attempt = Attempt { now_us, cost: charge.cost };
    let report = charge.kernel.report(&charge.kernel.given_back(reading, own), attempt, outcome.verdict);
    outcome.report = Report { remaining: report.remaining.max(own), ..report };
}

fn is_over(outcome: &Outcome) -> bool {
    outcome.verdict == Verdict::Over
}

/// Units set aside for a request while the store decides the rest. Dropped without [`Reservation::keep`], prepaid
/// units go back to their leases, and in any case if the rest of their charge does not fit. A postpaid charge is
/// recorded whatever the answer, so its units stay spent.
struct SetAside<C: Clock> {
    leases: Arc<Leases>,
    clock: C,
    portions: Portions,
    is_prepaid: SmallVec<[bool; 2]>,
    /// `true` for a charge whose rest does not fit; empty until the store answers.
    is_over: SmallVec<[bool; 2]>,
    is_kept: AtomicBool,
    is_finished: bool,
    /// What the store below recorded of the request.
    below: Option<Box<PartialOutcomes>>,
}

impl<C: Clock + Clone> SetAside<C> {
    fn new(leases: &Arc<Leases>, clock: &C, charges: &Charges, portions: Portions) -> Self {
        let is_prepaid = charges.values().map(|charge| charge.charging == Charging::Prepaid).collect();
        let (leases, clock, is_kept) = (Arc::clone(leases), clock.clone(), AtomicBool::new(false));
        let is_over = SmallVec::new();
        Self { leases, clock, portions, is_prepaid, is_over, is_kept, is_finished: false, below: None }
    }
}

impl<C: Clock> SetAside<C> {
    /// What the store decides of a charge; `None` if the units cover it.
    fn rest(&self, index: usize, charge: &Charge) -> Option<Charge> {
        let portion = &self.portions[index];
        match portion.units() {
            _ if portion.taken.outcome.is_some() => None,
            0 => Some(charge.clone()),
            units => Some(Charge { cost: Cost::take(charge.cost.taken() - units), ..charge.clone() }),
        }
    }

    fn goes_back(&self, index: usize) -> bool {
        let is_over = self.is_over.get(index).is_some_and(|is_over| *is_over);
        self.is_prepaid[index] && (is_over || !self.is_kept.load(Ordering::Relaxed))
    }

    /// Combines the outcomes of covered charges with the store's outcomes.
    fn merged(&self, charges: &Charges, answered: Outcomes) -> Outcomes {
        let mut answered = answered.by_charge.into_iter();
        let portions = charges.values().zip(&self.portions).enumerate();
        let outcome = |(index, (charge, portion)): (usize, (&Charge, &Portion))| match portion.taken.outcome {
            Some(outcome) if self.goes_back(index) => Some(portion.given_back(charge, outcome)),
            Some(outcome) => Some(outcome),
            None => answered.next().map(|outcome| portion.in_first_window(charge, outcome)),
        };
        portions.filter_map(outcome).collect()
    }

    /// Spends the units or puts them back, once.
    fn finish(&mut self) {
        if std::mem::replace(&mut self.is_finished, true) {
            return;
        }
        let now_us = self.clock.now_us();
        for (index, portion) in self.portions.iter().enumerate() {
            if self.goes_back(index) {
                self.leases.put_back(portion, now_us);
            } else {
                self.leases.spent(portion.units());
            }
        }
    }
}

impl<C: Clock> Reservation for SetAside<C> {
    fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
        if let Some(below) = &self.below {
            below.keep();
        }
    }
}

impl<C: Clock> Drop for SetAside<C> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl<C: Clock> fmt::Debug for SetAside<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetAside").field("portions", &self.portions).finish_non_exhaustive()
    }
}
