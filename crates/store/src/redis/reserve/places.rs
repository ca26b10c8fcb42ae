//! Where the counters of a request can be, and how a place is called.

use std::time::Duration;

use engine::{Charge, StoreError};
use tokio::time::Instant;

use crate::redis::error::Redirect;
use crate::redis::script::{EncodedRequest, RequestReply};

/// Why a request has no answer.
#[derive(Debug)]
pub(in crate::redis) enum RouteError {
    /// The request may have been decided, or cannot be decided at present.
    Failed(StoreError),
    /// The slot is migrating, and the keys of the request are on both nodes: they can be decided one at a time only.
    SlotMigrating,
}

/// Where counters can be, and how a place is called.
pub(in crate::redis) trait Places: Send + Sync + 'static {
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

/// The place of the first counter; `None` without a counter.
pub(super) fn first_place<'r, P: Places>(
    places: &'r P,
    charges: impl Iterator<Item = &'r Charge>,
    request: &'r EncodedRequest,
) -> Option<P::Place> {
    places_of(places, charges, request).next()
}

pub(super) fn places_of<'r, P: Places>(
    places: &'r P,
    charges: impl Iterator<Item = &'r Charge>,
    request: &'r EncodedRequest,
) -> impl Iterator<Item = P::Place> {
    let with_counter = charges.filter(|charge| charge.kernel.has_counter());
    with_counter.zip(request.keys()).map(|(charge, key)| places.place(charge, key))
}
