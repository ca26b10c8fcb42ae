//! Decides a request in parts. All parts are sent together, and each records its charges if they fit; if the whole
//! request is then denied, they are undone. Limits are therefore never exceeded, but a denied request briefly holds
//! units that others could have had. If an unanswered part leaves the decision open, the caller decides; until then the
//! charges stay recorded.

use std::sync::Arc;
use std::time::Duration;

use engine::algorithm::Verdict;
use engine::{Charges, Outcome, Outcomes, PartialOutcomes, Reservation, StoreError};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::part::{RequestPart, is_deferred};
use crate::redis::backends::Backends;
use crate::redis::connect::ConnectTimeouts;
use crate::redis::error::RouteError;
use crate::redis::script::{self, EncodedRequest};

/// Minimum time for an undo. It can exceed the request's deadline, because no caller waits for it.
const LEAST_UNDO_TIME: Duration = Duration::from_millis(250);

/// The undo, and a redirect before it.
const UNDO_ROUND_TRIPS: u32 = 2;

pub(super) struct SplitRequest {
    backends: Arc<Backends>,
    charges: Charges,
    /// The caller's answer comes by this time. Parts with a shorter timeout end sooner.
    deadline: Instant,
}

/// The charges of the request after its parts were sent, in order.
struct SentCharges {
    charges: Vec<SentCharge>,
}

#[derive(Clone)]
struct SentCharge {
    /// `None` until the part is answered.
    result: Option<Result<Outcome, StoreError>>,
    /// `true` if its part was admitted: then the charges of the part that fit are recorded.
    is_recorded: bool,
}

/// Lets a request's task keep the recorded charges. If it is dropped unused, the task undoes them.
#[derive(Debug)]
struct KeepSignal(Mutex<Option<oneshot::Sender<()>>>);

impl Reservation for KeepSignal {
    fn keep(&self) {
        let is_received = self.0.lock().take().is_none_or(|signal| signal.send(()).is_ok());
        if !is_received {
            tracing::debug!("cross-slot reservation ended before its decision");
        }
    }
}

type Reply = oneshot::Sender<Result<Outcomes, StoreError>>;

impl SplitRequest {
    pub(super) fn new(backends: Arc<Backends>, charges: Charges, deadline: Instant) -> Self {
        Self { backends, charges, deadline }
    }

    /// Decides the request. Continues if the caller is gone, so that no charge stays recorded by mistake.
    pub(super) async fn run(self, parts: Vec<RequestPart>, reply: Reply) {
        let mut sent = self.send_parts(parts).await;
        if self.charges.is_denied(|index| sent.is_over(index)) {
            return self.undo_and_reply(sent, reply).await;
        }
        let is_answered = sent.is_answered();
        if is_answered {
            self.send_deferred(&mut sent).await;
        }
        // Sending fails only if the caller is gone.
        if sent.is_answered() {
            return drop(reply.send(sent.result(None)));
        }
        let (keep, kept) = oneshot::channel();
        let signal = KeepSignal(Mutex::new(Some(keep)));
        drop(reply.send(sent.result(Some(Arc::new(signal)))));
        match kept.await {
            Ok(()) if is_answered => {}
            Ok(()) => self.send_deferred(&mut sent).await,
            Err(_dropped) => self.undos(&sent).for_each(|_| std::future::ready(())).await,
        }
    }

    /// Sends all parts. Each records its charges if they fit.
    async fn send_parts(&self, parts: Vec<RequestPart>) -> SentCharges {
        let unanswered = SentCharge { result: None, is_recorded: false };
        let mut charges = SentCharges { charges: vec![unanswered; self.charges.len()] };
        let mut sent: FuturesUnordered<_> = parts.into_iter().map(|part| self.decide_part(part)).collect();
        while let Some((part, result)) = sent.next().await {
            match result {
                Err(RouteError::SlotMigrating) => {
                    let singles = part.split_further(&self.charges);
                    sent.extend(singles.into_iter().map(|part| self.decide_part(part)));
                }
                Ok(outcomes) => charges.add_part(&part, Ok(&outcomes)),
                Err(RouteError::Failed(failure)) => charges.add_part(&part, Err(&failure)),
            }
        }
        charges
    }

    async fn decide_part(&self, part: RequestPart) -> (RequestPart, Result<Outcomes, RouteError>) {
        let outcomes = self.decide_place(&part.charges).await;
        (part, outcomes)
    }

    /// Decides charges whose counters are in one place.
    async fn decide_place(&self, charges: &Charges) -> Result<Outcomes, RouteError> {
        let request = EncodedRequest::new(charges, &self.backends.options.key_prefix);
        let place = self.backends.places(charges.values(), &request).next().unwrap_or_default();
        let deadline = self.deadline.min(self.backends.deadline(place));
        let answer = self.backends.call(request, place, deadline).await?;
        Ok(answer.outcomes(charges)?)
    }

    /// Sends the refunds that had to wait until the request was known to be admitted.
    async fn send_deferred(&self, sent: &mut SentCharges) {
        let deferred = self.charges.values().enumerate().filter(|(_, charge)| is_deferred(charge));
        let mut refunds: FuturesUnordered<_> = deferred
            .map(|(index, _)| async move {
                let refund =
                    self.charges.filter_map(|other, charge| (other == index).then(|| charge.clone()));
                (index, self.decide_place(&refund).await)
            })
            .collect();
        while let Some((index, result)) = refunds.next().await {
            sent.charges[index].result = match result {
                Ok(outcomes) => outcomes.by_charge.first().copied().map(Ok),
                Err(error) => {
                    let error = StoreError::from(error);
                    tracing::debug!(%error, "cannot confirm a refund; it may be lost");
                    Some(Err(error))
                }
            };
        }
    }

    /// Undoes the recorded charges. Replies once the outcomes show the counters after the undo, at the latest by the
    /// deadline.
    async fn undo_and_reply(&self, mut sent: SentCharges, reply: Reply) {
        let mut undos = self.undos(&sent);
        while let Ok(Some((index, undone))) = timeout_at(self.deadline, undos.next()).await {
            if let Some(outcome) = undone {
                sent.charges[index].result = Some(Ok(outcome));
            }
        }
        // Fails only if the caller is gone.
        drop(reply.send(sent.result(None)));
        while undos.next().await.is_some() {}
    }

    /// The undo of each recorded charge.
    fn undos(
        &self,
        sent: &SentCharges,
    ) -> FuturesUnordered<impl Future<Output = (usize, Option<Outcome>)> + use<'_>> {
        let undos = self.charges.iter().enumerate().filter_map(|(index, (key, charge))| {
            let sent = sent.charges.get(index).filter(|sent| sent.is_recorded)?;
            let granted = sent.result.as_ref()?.as_ref().ok()?;
            let undo = EncodedRequest::undo(key, charge, granted, &self.backends.options.key_prefix)?;
            Some(self.undo_charge(index, undo))
        });
        undos.collect()
    }

    /// Undoes one charge. Returns its index and the outcome after the undo, or `None` if the undo failed.
    async fn undo_charge(&self, index: usize, undo: EncodedRequest) -> (usize, Option<Outcome>) {
        let (_, charge) = self.charges.get(index);
        let backends = &*self.backends;
        let place = backends.places(std::iter::once(charge), &undo).next().unwrap_or_default();
        let timeouts = ConnectTimeouts::new(backends.timeout(place));
        let time = timeouts.at_least(LEAST_UNDO_TIME, UNDO_ROUND_TRIPS);
        let deadline = self.deadline.max(Instant::now() + time);
        let answer = backends.call(undo, place, deadline).await.map_err(StoreError::from);
        match answer.and_then(|answer| script::undone(charge, &answer)) {
            Ok(outcome) => (index, Some(outcome)),
            Err(error) => {
                backends.lost_undo(place);
                tracing::debug!(%error, "cannot undo a charge; a denied request may stay counted");
                (index, None)
            }
        }
    }
}

impl SentCharges {
    fn add_part(&mut self, part: &RequestPart, outcomes: Result<&Outcomes, &StoreError>) {
        let is_recorded =
            outcomes.is_ok_and(|outcomes| !part.charges.is_denied(|index| outcomes.is_over(index)));
        for (place, index) in part.indices().enumerate() {
            let result = match outcomes {
                Ok(outcomes) => Ok(outcomes.by_charge[place]),
                Err(failure) => Err(failure.clone()),
            };
            self.charges[index] = SentCharge { result: Some(result), is_recorded };
        }
    }

    /// `true` if the charge at `index` is known to exceed its limit.
    fn is_over(&self, index: usize) -> bool {
        matches!(&self.charges[index].result, Some(Ok(outcome)) if outcome.verdict == Verdict::Over)
    }

    fn is_answered(&self) -> bool {
        self.charges.iter().all(|charge| matches!(charge.result, Some(Ok(_))))
    }

    fn result(&self, reservation: Option<Arc<dyn Reservation>>) -> Result<Outcomes, StoreError> {
        let by_charge = self.charges.iter().map(|charge| match &charge.result {
            Some(result) => result.clone(),
            None => Err(StoreError::Malformed("a charge without an outcome".to_owned())),
        });
        PartialOutcomes::collect(by_charge.collect(), reservation)
    }
}
