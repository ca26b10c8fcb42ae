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

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::clock::Clock;
use engine::algorithm::Verdict;
use engine::{Charges, Outcome, Outcomes, PartialOutcomes, Reservation, Store, StoreError};
use smallvec::SmallVec;
use tokio::sync::mpsc;

use self::lease::{Portion, free};
use self::lender::{Errand, WAITING_ASKS};
use self::table::Contribution;

pub use lender::Lender;
pub use table::{BorrowedUnits, LeaseStats, LeasedUnits, Leases};

/// A store with the process's leases on top.
#[derive(Debug)]
pub struct Leased<S, C> {
    below: Arc<S>,
    leases: Arc<Leases>,
    /// Counts while the process or its machine stands still.
    clock: C,
    asks: mpsc::Sender<Errand>,
}

/// One per charge: what the leases contribute.
type Portions = SmallVec<[Option<Portion>; 2]>;

/// What the leases contribute to a request.
enum Prepared {
    /// No units. `true`: the leases need to hear the answer.
    Nothing(bool),
    /// All units.
    Decided(Outcomes),
    Partly(Portions),
}

/// The outcome if borrowed units cover the charge.
fn covered(portion: Option<&Portion>) -> Option<Outcome> {
    portion?.outcome
}

impl<S: Store, C: Clock + Clone> Leased<S, C> {
    /// Wraps `below`. Run the lender on the runtime of `below`. All layers over the same leases share the clock.
    #[must_use]
    pub fn new(below: S, leases: Arc<Leases>, clock: C) -> (Self, Lender<S, C>) {
        let (below, (asks, waiting)) = (Arc::new(below), mpsc::channel(WAITING_ASKS));
        let lender = Lender {
            below: Arc::clone(&below),
            leases: Arc::clone(&leases),
            clock: clock.clone(),
            asks: waiting,
        };
        (Self { below, leases, clock, asks }, lender)
    }

    /// Not part of the future, which would be larger for every request.
    fn set_aside(&self, charges: &Charges, now_us: u64) -> Prepared {
        let (mut portions, mut is_hot) = (Portions::new(), false);
        for (index, charged) in charges.iter().enumerate() {
            let mut found = Contribution::default();
            if let Some(limit) = charges.leased(index) {
                found = self.leases.set_aside((charged, limit), charges.len() == 1, now_us);
            }
            if let Some(ask) = found.ask {
                self.send(ask);
            }
            is_hot |= found.is_hot;
            portions.push(found.portion);
        }
        if portions.iter().all(Option::is_none) {
            return Prepared::Nothing(is_hot);
        }
        match portions.iter().map(|portion| covered(portion.as_ref())).collect() {
            Some(outcomes) => {
                self.leases.decided(&portions, now_us);
                Prepared::Decided(outcomes)
            }
            None => Prepared::Partly(portions),
        }
    }

    fn send(&self, ask: Errand) {
        let Err(unsent) = self.asks.try_send(ask) else { return };
        let now_us = self.clock.now_us();
        self.leases.answered(&unsent.into_inner(), Err(&StoreError::Overloaded), (now_us, now_us));
    }

    /// Records the outcomes of charges, or of their rests if there are portions. Units that the process holds are
    /// then reported as free.
    fn hear(&self, charges: &Charges, portions: &[Option<Portion>], outcomes: &mut Outcomes, sent_us: u64) {
        let now_us = self.clock.now_us();
        let is_denied = charges.is_denied(|index| outcomes.is_over(index));
        for (index, (charged, outcome)) in charges.iter().zip(&mut outcomes.by_charge).enumerate() {
            let (charge, portion) = (charged.1, portions.get(index).and_then(Option::as_ref));
            if let Some(portion) = portion.filter(|portion| portion.outcome.is_some()) {
                if is_denied && portion.is_prepaid {
                    free(charge, outcome, portion.units);
                }
                continue;
            }
            let Some(limit) = charges.leased(index) else { continue };
            let taken = charge.cost.taken() - portion.map_or(0, |portion| portion.units);
            let recorded = if charge.is_recorded(outcome.verdict, is_denied) { taken } else { 0 };
            let (own, ask) = self.leases.hear((charged, limit), (outcome, recorded), (sent_us, now_us));
            if let Some(ask) = ask {
                self.send(ask);
            }
            if own > 0 || portion.is_some() {
                free(charge, outcome, own);
            }
            if let Some(portion) = portion {
                portion.name_window(&charge.kernel, outcome);
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
        let (leases, clock) = (Arc::clone(&self.leases), self.clock.clone());
        let mut set_aside =
            SetAside { leases, clock, portions, is_kept: AtomicBool::new(false), below: None };
        let rest = charges.filter_map(|index, charge| match &set_aside.portions[index] {
            Some(portion) => portion.rest(charge),
            None => Some(charge.clone()),
        });
        let answer = self.below.decide(&rest).await;
        let mut places = 0..;
        let outcome = |portion: &mut Option<Portion>| {
            if let Some(outcome) = covered(portion.as_ref()) {
                return Ok(outcome);
            }
            let place = places.next().unwrap_or_default();
            let outcome = match &answer {
                Ok(outcomes) => Ok(outcomes.by_charge[place]),
                Err(error) => error.outcome(place).map_err(StoreError::clone),
            };
            if let (Some(portion), Ok(outcome)) = (portion, &outcome) {
                portion.is_over = outcome.verdict == Verdict::Over;
            }
            outcome
        };
        let by_charge: Vec<_> = set_aside.portions.iter_mut().map(outcome).collect();
        if let Err(error) = answer {
            if let StoreError::Partial(partial) = error {
                set_aside.below = Some(partial);
            }
            return PartialOutcomes::collect(by_charge, Some(Arc::new(set_aside)));
        }
        let mut outcomes: Outcomes = by_charge.into_iter().flatten().collect();
        *set_aside.is_kept.get_mut() = !charges.is_denied(|index| outcomes.is_over(index));
        let portions = set_aside.finish();
        self.hear(charges, &portions, &mut outcomes, sent_us);
        Ok(outcomes)
    }
}

impl<S: Store, C: Clock + Clone> Store for Leased<S, C> {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        if !charges.has_leased() {
            return self.below.decide(charges).await;
        }
        let sent_us = self.clock.now_us();
        // Boxed because this future would enlarge every decision's future. For the same reason no arm awaits: the
        // future would then contain `Prepared`.
        let (is_hot, completing) = match self.set_aside(charges, sent_us) {
            Prepared::Nothing(is_hot) => (is_hot, None),
            Prepared::Decided(outcomes) => return Ok(outcomes),
            Prepared::Partly(portions) => (false, Some(Box::pin(self.complete(charges, portions, sent_us)))),
        };
        if let Some(completing) = completing {
            return completing.await;
        }
        let mut outcomes = self.below.decide(charges).await?;
        if is_hot {
            self.hear(charges, &[], &mut outcomes, sent_us);
        }
        Ok(outcomes)
    }
}

/// Units set aside for a request while the store decides the rest. Dropped without [`Reservation::keep`], prepaid
/// units go back to their leases, and in any case if the rest of their charge does not fit.
#[derive(Debug)]
struct SetAside<C: Clock> {
    leases: Arc<Leases>,
    clock: C,
    portions: Portions,
    is_kept: AtomicBool,
    /// What the store below recorded of the request.
    below: Option<Box<PartialOutcomes>>,
}

impl<C: Clock> SetAside<C> {
    /// Spends the units or puts them back.
    fn finish(&mut self) -> Portions {
        let (is_kept, now_us) = (*self.is_kept.get_mut(), self.clock.now_us());
        for portion in self.portions.iter().flatten() {
            let goes_back = portion.is_prepaid && (portion.is_over || !is_kept);
            self.leases.finish(portion, goes_back, now_us);
        }
        std::mem::take(&mut self.portions)
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
