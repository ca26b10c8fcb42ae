//! Requests whose counters are in several places: slots of a cluster, or servers that share nothing. One script call
//! decides one place, so a request over several places is decided in parts (`part`), which reserve in parallel and are
//! undone if the request is denied (`request`).

mod part;
mod request;

use std::sync::Arc;
use std::time::Duration;

use engine::{Charge, Charges, Outcomes, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::part::RequestPart;
use self::request::SplitRequest;
use super::error::{Redirect, ended_without_answer};
use super::script::{EncodedRequest, RequestReply};
use super::tasks::Tasks;

/// Why a request has no answer.
#[derive(Debug)]
pub(super) enum RouteError {
    /// The request may have been decided, or cannot be decided at present.
    Failed(StoreError),
    /// The slot is migrating, and the keys of the request are on both nodes: they can be decided one at a time only.
    SlotMigrating,
}

/// Where counters can be, and how a place is called.
pub(super) trait Places: Send + Sync + 'static {
    /// Counters of one place can be decided by one script call.
    type Place: Copy + Eq + Send + Sync;

    /// The place of the counter of `charge`, whose key with its prefix is `key`.
    fn place(&self, charge: &Charge, key: &str) -> Self::Place;

    /// Sends a request whose counters are in one place, and returns its answer. `None`: the request has no counter, so
    /// any server can answer.
    fn call(
        &self,
        request: EncodedRequest,
        place: Option<Self::Place>,
        deadline: Instant,
    ) -> impl Future<Output = Result<RequestReply, RouteError>> + Send;

    /// The prefix of every key.
    fn key_prefix(&self) -> &str;

    /// The time for this many round trips to a server, but not less than `least`.
    fn time_for(&self, round_trips: u32, least: Duration) -> Duration;

    /// Reports that a charge in this place may stay recorded, although its request was denied.
    fn lost_undo(&self, place: Option<Self::Place>);
}

/// Decides a request. `request` is the encoding of `charges`. A request over several places goes on as one of `tasks`
/// when its caller is gone.
pub(super) async fn decide<P: Places>(
    places: &Arc<P>,
    tasks: &Tasks,
    charges: &Charges,
    request: EncodedRequest,
    deadline: Instant,
) -> Result<Outcomes, StoreError> {
    let parts = if have_one_place(&**places, charges, &request) {
        let place = first_place(&**places, charges.values(), &request);
        match places.call(request, place, deadline).await {
            Ok(answer) => return answer.outcomes(charges),
            Err(RouteError::Failed(failure)) => return Err(failure),
            Err(RouteError::SlotMigrating) => RequestPart::singles(charges),
        }
    } else {
        RequestPart::by_place(&**places, charges, &request)
    };
    let (reply, outcomes) = oneshot::channel();
    let request = SplitRequest::new(Arc::clone(places), charges.clone(), deadline);
    tasks.spawn("request in parts", request.run(parts, reply));
    outcomes.await.unwrap_or_else(|_| Err(ended_without_answer()))
}

/// Whether all counters of a request are in one place, so that one call can decide it.
fn have_one_place<P: Places>(places: &P, charges: &Charges, request: &EncodedRequest) -> bool {
    let mut all = places_of(places, charges.values(), request);
    let first = all.next();
    all.all(|place| Some(place) == first)
}

/// The place of the first counter; `None` without a counter.
fn first_place<'r, P: Places>(
    places: &'r P,
    charges: impl Iterator<Item = &'r Charge>,
    request: &'r EncodedRequest,
) -> Option<P::Place> {
    places_of(places, charges, request).next()
}

fn places_of<'r, P: Places>(
    places: &'r P,
    charges: impl Iterator<Item = &'r Charge>,
    request: &'r EncodedRequest,
) -> impl Iterator<Item = P::Place> {
    let with_counter = charges.filter(|charge| charge.kernel.has_counter());
    with_counter.zip(request.keys()).map(|(charge, key)| places.place(charge, key))
}

impl From<StoreError> for RouteError {
    fn from(failure: StoreError) -> Self {
        Self::Failed(failure)
    }
}

impl From<RouteError> for StoreError {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::Failed(failure) => failure,
            RouteError::SlotMigrating => Redirect::TryAgain.into(),
        }
    }
}
