//! Decides requests whose counters are in several places (cluster slots, or separate servers). One script call decides
//! one place, so the request is cut into parts (`part`), which reserve in parallel and are undone if the request is
//! denied (`request`).

mod part;
mod request;

use std::sync::Arc;

use engine::{Charges, Outcomes, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::part::RequestPart;
use self::request::SplitRequest;
use super::backends::Backends;
use super::error::{RouteError, ended_without_answer};
use super::script::EncodedRequest;
use super::tasks::Tasks;

/// Decides a request. `request` is the encoding of `charges`. A request over several places continues as one of `tasks`
/// if its caller is gone.
pub(super) async fn decide(
    backends: &Arc<Backends>,
    tasks: &Tasks,
    charges: &Charges,
    request: EncodedRequest,
) -> Result<Outcomes, StoreError> {
    let mut places = backends.places(charges.values(), &request);
    let place = places.next().unwrap_or_default();
    let (mut have_one_place, mut timeout) = (true, backends.timeout(place));
    for other in places {
        have_one_place &= other == place;
        timeout = timeout.max(backends.timeout(other));
    }
    let deadline = Instant::now() + timeout;
    let parts = if have_one_place {
        match backends.call(request, place, deadline).await {
            Ok(answer) => return answer.outcomes(charges),
            Err(RouteError::Failed(failure)) => return Err(failure),
            Err(RouteError::SlotMigrating) => RequestPart::singles(charges),
        }
    } else {
        RequestPart::by_place(charges, &request, |charge, key| backends.place(charge, key))
    };
    let (reply, outcomes) = oneshot::channel();
    let request = SplitRequest::new(Arc::clone(backends), charges.clone(), deadline);
    tasks.spawn("request in parts", request.run(parts, reply));
    outcomes.await.unwrap_or_else(|_| Err(ended_without_answer()))
}
