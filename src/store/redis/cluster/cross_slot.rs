//! A request over several slots: every slot's part is recorded where it fits, all at once; if the whole is held back, or
//! cannot be known, what was recorded is undone. So the limit is never exceeded, and a request that is held back takes
//! for a moment what others might have had.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::split::{self, RequestPart};
use super::{Cluster, RouteError};
use crate::engine::{Charges, Outcome, Outcomes, StoreError, Verdict};
use crate::store::redis::script::{self, Encoded};

/// An undo may take longer than the decision: nobody waits for it.
const UNDO_TIMEOUT: Duration = Duration::from_millis(250);

/// A request on its way.
pub(super) struct CrossSlotRequest {
    cluster: Arc<Cluster>,
    charges: Charges,
    /// By then the caller has an answer.
    deadline: Instant,
}

/// What is known once every part has been asked.
struct Reserved {
    /// By charge; those of a part that failed are missing.
    outcomes: Vec<Option<Outcome>>,
    /// Whether a charge was recorded as far as its part goes.
    recorded: Vec<bool>,
    failure: Option<StoreError>,
}

type Reply = oneshot::Sender<Result<Outcomes, StoreError>>;

impl CrossSlotRequest {
    pub(super) fn new(cluster: Arc<Cluster>, charges: Charges, deadline: Instant) -> Self {
        Self { cluster, charges, deadline }
    }

    /// Decides the request. Goes on when nobody waits for the reply any more, so that nothing stays recorded by mistake.
    pub(super) async fn run(self, parts: Vec<RequestPart>, reply: Reply) {
        let mut reserved = self.reserve(parts).await;
        if reserved.failure.is_none() && !self.is_held(&reserved) {
            self.give_back(&mut reserved).await;
            if reserved.failure.is_none() {
                // A caller who has gone does not want it.
                drop(reply.send(reserved.settled()));
                return;
            }
        }
        self.undo(reserved, reply).await;
    }

    /// Has all parts recorded where they fit.
    async fn reserve(&self, parts: Vec<RequestPart>) -> Reserved {
        let charges = self.charges.len();
        let mut reserved =
            Reserved { outcomes: vec![None; charges], recorded: vec![false; charges], failure: None };
        let mut asked: FuturesUnordered<_> = parts.into_iter().map(|part| self.ask(part)).collect();
        while let Some((part, answered)) = asked.next().await {
            match answered {
                Ok(outcomes) => reserved.add(&part, &outcomes),
                Err(RouteError::SlotMigrating) => {
                    asked.extend(part.cut(&self.charges).into_iter().map(|part| self.ask(part)))
                }
                Err(RouteError::Failed(failure)) => reserved.failure = Some(failure),
            }
        }
        reserved
    }

    async fn ask(&self, part: RequestPart) -> (RequestPart, Result<Outcomes, RouteError>) {
        let outcomes = self.decided(&part.charges).await;
        (part, outcomes)
    }

    async fn decided(&self, charges: &Charges) -> Result<Outcomes, RouteError> {
        let request = Encoded::new(charges, &self.cluster.options.key_prefix);
        let slot = split::slot(&request).flatten();
        let answer = self.cluster.ask(request, slot, self.deadline).await?;
        Ok(answer.outcomes(charges)?)
    }

    /// Whether the request as a whole is held back. Asked only when every part has answered.
    fn is_held(&self, reserved: &Reserved) -> bool {
        let is_over =
            |place: usize| reserved.outcomes[place].is_none_or(|outcome| outcome.verdict == Verdict::Over);
        self.charges.is_denied(is_over)
    }

    /// Gives back what had to wait until it was known that the request goes ahead.
    async fn give_back(&self, reserved: &mut Reserved) {
        let each = self.charges.iter().enumerate();
        let mut asked: FuturesUnordered<_> = each
            .filter(|(_, (_, charge))| split::waits(charge))
            .map(|(place, (key, _))| async move {
                let alone = self.charges.filtered(|other, _| other == key);
                (place, self.decided(&alone).await)
            })
            .collect();
        while let Some((place, answered)) = asked.next().await {
            match answered {
                Ok(outcomes) => reserved.outcomes[place] = outcomes.by_charge.first().copied().flatten(),
                Err(missed) => reserved.failure = Some(missed.into()),
            }
        }
    }

    /// Undoes what was recorded and replies: with an error at once, with a denial as soon as the counters stand as if it
    /// had not been asked, at the deadline at the latest.
    async fn undo(&self, mut reserved: Reserved, reply: Reply) {
        let each = self.charges.iter().enumerate();
        let mut undos: FuturesUnordered<_> = each
            .filter(|(place, _)| reserved.recorded[*place])
            .filter_map(|(place, charge)| {
                let granted = reserved.outcomes[place].as_ref()?;
                let undo = Encoded::undo(charge, granted, &self.cluster.options.key_prefix)?;
                Some(self.undone(place, undo))
            })
            .collect();
        if reserved.failure.is_none() {
            while let Ok(Some((place, undone))) = timeout_at(self.deadline, undos.next()).await {
                reserved.outcomes[place] = undone.or(reserved.outcomes[place]);
            }
        }
        // A caller who has gone does not want it.
        drop(reply.send(reserved.settled()));
        while undos.next().await.is_some() {}
    }

    /// How the counter stands when the charge is undone; `None` where that is not known.
    async fn undone(&self, place: usize, undo: Encoded) -> (usize, Option<Outcome>) {
        let slot = split::slot(&undo).flatten();
        let deadline = self.deadline.max(Instant::now() + UNDO_TIMEOUT);
        match self.cluster.ask(undo, slot, deadline).await {
            Ok(answer) => {
                let charge = self.charges.charge(place);
                (place, script::outcome(charge, &answer.numbers, answer.now_us).ok())
            }
            Err(missed) => {
                self.cluster.queue_depth.observer().lost_undo();
                tracing::debug!(error = %StoreError::from(missed), "a charge that was held back may stay recorded");
                (place, None)
            }
        }
    }
}

impl Reserved {
    fn add(&mut self, part: &RequestPart, outcomes: &Outcomes) {
        let held = part.charges.is_denied(|place| outcomes.is_over(place));
        for (place, outcome) in part.placed(outcomes) {
            self.outcomes[place] = outcome;
            self.recorded[place] = !held;
        }
    }

    fn settled(self) -> Result<Outcomes, StoreError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let outcomes: Option<Outcomes> = self.outcomes.into_iter().collect();
        outcomes.ok_or_else(|| StoreError::Malformed("a part without its answer".to_owned()))
    }
}

impl From<RouteError> for StoreError {
    fn from(missed: RouteError) -> Self {
        match missed {
            RouteError::Failed(failure) => failure,
            RouteError::SlotMigrating => {
                Self::Refused("the keys are just being moved to another node".to_owned())
            }
        }
    }
}
