//! Kuadrant's calls, for both gRPC servers. A check charges nothing, a report is a commit without an id, and a
//! reservation is a hold (`decide/holds.rs`).

use std::time::Duration;

use engine::{LONGEST_HOLD, RawRequest, Store};
use futures_util::future::BoxFuture;

use super::convert::text;
use super::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use super::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::pb::kuadrant::service::ratelimit::v1::{
    CommitRequest, CommitResponse, ReserveRequest, ReserveResponse,
};
use crate::decide::holds::{self, Committed};
use crate::decide::{CallOrigin, Handler, NoDecision};
use crate::telemetry::metrics::RequestFailure;
use crate::telemetry::traces::CallSpan;

/// Kuadrant sends a route's timeout. Commits after it are usual, and must still settle.
const SHORTEST_TTL: Duration = Duration::from_secs(3_600);

const LOST: NoDecision = NoDecision::refused(RequestFailure::Store, "the store did not answer in the middle");

/// A call with its message, or why there is none.
pub(super) struct Call<'a, S, M> {
    pub(super) handler: &'a Handler<S>,
    pub(super) message: Result<M, NoDecision>,
    pub(super) origin: CallOrigin,
    pub(super) span: &'a mut CallSpan,
}

pub(super) type Answered<'a, A> = BoxFuture<'a, Result<A, NoDecision>>;

pub(super) fn check<S: Store>(call: Call<'_, S, RateLimitRequest>) -> Answered<'_, RateLimitResponse> {
    let read = || {
        let mut request = RawRequest::from(call.message?);
        request.descriptors.iter_mut().for_each(|descriptor| descriptor.hits_addend = Some(0));
        Ok(request)
    };
    Box::pin(call.handler.decide(read, call.origin, call.span))
}

pub(super) fn report<S: Store>(call: Call<'_, S, RateLimitRequest>) -> Answered<'_, RateLimitResponse> {
    let read = call.message.map(|message| (message.into(), None));
    Box::pin(async move {
        match holds::commit(call.handler, read, call.origin, call.span).await? {
            Committed::Settled(answer) => Ok(answer),
            Committed::Already | Committed::Expired | Committed::Lost => Err(LOST),
        }
    })
}

pub(super) fn reserve<S: Store>(call: Call<'_, S, ReserveRequest>) -> Answered<'_, ReserveResponse> {
    let read = call.message.map(|message| {
        let ttl = message.ttl.and_then(|ttl| Duration::try_from(ttl).ok()).unwrap_or_default();
        let request = request(message.domain, message.descriptors, message.amount);
        (request, ttl.clamp(SHORTEST_TTL, LONGEST_HOLD))
    });
    Box::pin(async move {
        let (_, hold) =
            holds::reserve::<_, RateLimitResponse>(call.handler, read, call.origin, call.span).await?;
        let code = if hold.is_some() { Code::Ok } else { Code::OverLimit };
        let reservation_id = hold.map(|hold| hold.to_string()).unwrap_or_default();
        Ok(ReserveResponse { code: code.into(), reservation_id })
    })
}

pub(super) fn commit<S: Store>(call: Call<'_, S, CommitRequest>) -> Answered<'_, CommitResponse> {
    let read = call.message.map(|message| {
        let id = Some(text(message.reservation_id)).filter(|id| !id.is_empty());
        (request(message.domain, message.descriptors, message.actual_amount), id)
    });
    let has_id = matches!(read, Ok((_, Some(_))));
    Box::pin(async move {
        match holds::commit::<_, RateLimitResponse>(call.handler, read, call.origin, call.span).await? {
            Committed::Settled(_) => Ok(CommitResponse { reservation_released: has_id }),
            Committed::Already | Committed::Expired => Ok(CommitResponse { reservation_released: false }),
            Committed::Lost => Err(LOST),
        }
    })
}

fn request(domain: Vec<u8>, mut descriptors: Vec<RateLimitDescriptor>, units: u64) -> RawRequest {
    descriptors.iter_mut().for_each(|descriptor| descriptor.hits_addend = Some(units));
    RateLimitRequest { domain, descriptors, hits_addend: 0 }.into()
}
