//! A request over several slots. All parts are sent at once, and each records its charges if they fit. If the whole
//! request is then denied, or a part failed, the recorded charges are undone. Limits are therefore never exceeded; a
//! denied request holds units for a moment that other requests could have had.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::router::{RouteError, Router};
use super::split::{self, RequestPart};
use crate::engine::algorithm::Verdict;
use crate::engine::{Charges, Outcome, Outcomes, StoreError};
use crate::store::redis::script::{self, Encoded};

/// Minimum time for an undo. It may exceed the deadline of the request, because no caller waits for it.
const UNDO_TIMEOUT: Duration = Duration::from_millis(250);

/// A request over several slots.
pub(super) struct CrossSlotRequest {
    router: Arc<Router>,
    charges: Charges,
    /// The caller has an answer by this time.
    deadline: Instant,
}

/// The request after its parts were sent.
struct Reservation {
    /// One for each charge of the request, in the same order.
    charges: Vec<ReservedCharge>,
    failure: Option<StoreError>,
}

#[derive(Clone, Copy, Default)]
struct ReservedCharge {
    /// `None` until the part is answered.
    outcome: Option<Outcome>,
    /// Whether its part was admitted: then the charges of the part that fit are recorded.
    is_recorded: bool,
}

type Reply = oneshot::Sender<Result<Outcomes, StoreError>>;

impl CrossSlotRequest {
    pub(super) fn new(router: Arc<Router>, charges: Charges, deadline: Instant) -> Self {
        Self { router, charges, deadline }
    }

    /// Decides the request. Goes on when the caller is gone, so that no charge stays recorded by mistake.
    pub(super) async fn run(self, parts: Vec<RequestPart>, reply: Reply) {
        let mut reservation = self.reserve(parts).await;
        let is_admitted = reservation.failure.is_none() && !self.is_denied(&reservation);
        if is_admitted {
            self.send_deferred(&mut reservation).await;
        }
        if !is_admitted || reservation.failure.is_some() {
            return self.undo(reservation, reply).await;
        }
        // It fails only when the caller is gone.
        drop(reply.send(reservation.into_result()));
    }

    /// Sends all parts. Each records its charges if they fit.
    async fn reserve(&self, parts: Vec<RequestPart>) -> Reservation {
        let charges = vec![ReservedCharge::default(); self.charges.len()];
        let mut reservation = Reservation { charges, failure: None };
        let mut sent: FuturesUnordered<_> = parts.into_iter().map(|part| self.decide_part(part)).collect();
        while let Some((part, result)) = sent.next().await {
            match result {
                Ok(outcomes) => reservation.add_part(&part, &outcomes),
                Err(RouteError::SlotMigrating) => {
                    let singles = part.split_further(&self.charges);
                    sent.extend(singles.into_iter().map(|part| self.decide_part(part)));
                }
                Err(RouteError::Failed(failure)) => reservation.failure = Some(failure),
            }
        }
        reservation
    }

    async fn decide_part(&self, part: RequestPart) -> (RequestPart, Result<Outcomes, RouteError>) {
        let outcomes = self.decide_slot(&part.charges).await;
        (part, outcomes)
    }

    /// Decides charges whose keys share a slot.
    async fn decide_slot(&self, charges: &Charges) -> Result<Outcomes, RouteError> {
        let request = Encoded::new(charges, self.router.key_prefix());
        let slot = split::first_slot(&request);
        let answer = self.router.call(request, slot, self.deadline).await?;
        Ok(answer.outcomes(charges)?)
    }

    /// Whether the whole request is denied. All parts must have been answered.
    fn is_denied(&self, reservation: &Reservation) -> bool {
        self.charges.is_denied(|index| {
            reservation.charges[index].outcome.is_none_or(|outcome| outcome.verdict == Verdict::Over)
        })
    }

    /// Sends the refunds that waited until the request was known to be admitted.
    async fn send_deferred(&self, reservation: &mut Reservation) {
        let deferred = self.charges.iter().enumerate().filter(|(_, (_, charge))| split::is_deferred(charge));
        let mut sent: FuturesUnordered<_> = deferred
            .map(|(index, (key, _))| async move {
                let refund = self.charges.filtered(|other, _| other == key);
                (index, self.decide_slot(&refund).await)
            })
            .collect();
        while let Some((index, result)) = sent.next().await {
            match result {
                Ok(outcomes) => {
                    reservation.charges[index].outcome = outcomes.by_charge.first().copied().flatten();
                }
                Err(error) => reservation.failure = Some(error.into()),
            }
        }
    }

    /// Undoes the recorded charges, and replies. A failure is replied at once; a denial when the outcomes show the
    /// counters after the undo, but not later than the deadline.
    async fn undo(&self, mut reservation: Reservation, reply: Reply) {
        let undos = self.charges.iter().enumerate().filter_map(|(index, charge)| {
            let reserved = reservation.charges[index];
            let granted = reserved.outcome.filter(|_| reserved.is_recorded)?;
            let undo = Encoded::undo(charge, &granted, self.router.key_prefix())?;
            Some(self.undo_charge(index, undo))
        });
        let mut undos: FuturesUnordered<_> = undos.collect();
        if reservation.failure.is_none() {
            while let Ok(Some((index, undone))) = timeout_at(self.deadline, undos.next()).await {
                let outcome = &mut reservation.charges[index].outcome;
                *outcome = undone.or(*outcome);
            }
        }
        // It fails only when the caller is gone.
        drop(reply.send(reservation.into_result()));
        while undos.next().await.is_some() {}
    }

    /// Undoes one charge. Returns its index and the outcome after the undo, or `None` if the undo failed.
    async fn undo_charge(&self, index: usize, undo: Encoded) -> (usize, Option<Outcome>) {
        let slot = split::first_slot(&undo);
        let deadline = self.deadline.max(Instant::now() + UNDO_TIMEOUT);
        match self.router.call(undo, slot, deadline).await {
            Ok(answer) => {
                let (_, charge) = self.charges.get(index);
                (index, script::outcome(charge, &answer.numbers, answer.now_us).ok())
            }
            Err(error) => {
                self.router.queue_depth().observer().lost_undo();
                tracing::debug!(error = %StoreError::from(error), "a charge of a denied request may stay recorded");
                (index, None)
            }
        }
    }
}

impl Reservation {
    fn add_part(&mut self, part: &RequestPart, outcomes: &Outcomes) {
        let is_denied = part.charges.is_denied(|index| outcomes.is_over(index));
        for (index, outcome) in part.with_indices(outcomes) {
            self.charges[index] = ReservedCharge { outcome, is_recorded: !is_denied };
        }
    }

    fn into_result(self) -> Result<Outcomes, StoreError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let outcomes: Option<Outcomes> = self.charges.into_iter().map(|charge| charge.outcome).collect();
        outcomes.ok_or_else(|| StoreError::Malformed("a charge without an outcome".to_owned()))
    }
}
