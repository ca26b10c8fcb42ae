//! Requests whose counters are in several places: slots of a cluster, or servers that share nothing. One script call
//! decides one place, so a request over several places is decided in parts (`part`), which reserve in parallel and are
//! undone if the request is denied (`request`).

mod part;
mod places;
mod request;

use std::sync::Arc;

use engine::{Charges, Outcomes, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::part::RequestPart;
pub(super) use self::places::{Places, RouteError};
use self::places::{first_place, places_of};
use self::request::SplitRequest;
use super::error::ended_without_answer;
use super::script::EncodedRequest;
use super::tasks::Tasks;

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
