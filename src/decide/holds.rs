//! Holds: a caller reserves an estimate, and commits the real cost, at most once and before the end. The id of a hold
//! contains the reservation's receipt. A commit sets a mark, then settles.

use std::time::Duration;

use engine::wire::{Bounds, RawRequest};
use engine::{Decision, Hold, Receipt, Request, SettleResult, Store};
use strum::IntoStaticStr;

use super::{Answer, CallOrigin, Handler, NoDecision, Right};
use crate::telemetry::traces::CallSpan;

const NO_HOLD: NoDecision =
    NoDecision::invalid("a hold has no negative hits, and neither a receipt nor a pause as last entry");

/// What a commit did, as named in answers and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Committed<A> {
    /// The real cost is booked.
    Settled(A),
    /// An earlier call committed the hold.
    Already,
    /// After the hold's end. The estimate stays.
    Expired,
    /// The store did not answer after the mark. The estimate stays, unless the store settled nevertheless.
    Lost,
}

/// Decides a reservation. There is a hold if it is admitted.
pub(crate) async fn reserve<S: Store, A: for<'a> From<Answer<'a>>>(
    handler: &Handler<S>,
    read: Result<(RawRequest, Duration), NoDecision>,
    origin: CallOrigin,
    span: &mut CallSpan,
) -> Result<(A, Option<Hold>), NoDecision> {
    let _timer = handler.meter.start();
    let reserved = async {
        let (request, ttl) = read?;
        let mut request = read_hold(&handler.bounds, request, origin, &[Right::Charge])?;
        request.set_hold(None);
        let answer = |decision: &Decision| {
            let receipt = decision.receipt_of_hold(|| fastrand::u64(..));
            let hold = receipt.map(|receipt| Hold::new(receipt, handler.limiter.clock.now_us(), ttl));
            (A::from(Answer::new(&request, decision, &handler.response)), hold)
        };
        handler.decide_read(&request, answer, span).await
    };
    let reserved = reserved.await;
    let admitted = reserved.as_ref().map(|(_, hold)| hold.is_some());
    let result = admitted.map_or("error", |admitted| if admitted { "ok" } else { "over_limit" });
    handler.limiter.rulebook.metrics.count_hold("reserve", result);
    reserved.map_err(|error| handler.fail(error, span))
}

/// Books the real cost of a hold. Without an id nothing was reserved, and each call is booked.
pub(crate) async fn commit<S: Store, A: for<'a> From<Answer<'a>>>(
    handler: &Handler<S>,
    read: Result<(RawRequest, Option<String>), NoDecision>,
    origin: CallOrigin,
    span: &mut CallSpan,
) -> Result<Committed<A>, NoDecision> {
    let _timer = handler.meter.start();
    let committed = async {
        let (request, id) = read?;
        // Ids are not signed, so a commit can return any units.
        let rights = if id.is_some() { &[Right::Charge, Right::Refund][..] } else { &[Right::Charge] };
        let mut request = read_hold(&handler.bounds, request, origin, rights)?;
        let mut receipt = Receipt::new(0);
        if let Some(id) = id {
            let now_us = handler.limiter.clock.now_us();
            let hold = Hold::read(&id, now_us).ok_or(NoDecision::invalid("the id cannot be read"))?;
            let Some(mark) = hold.mark(now_us) else { return Ok(Committed::Expired) };
            if !handler.limiter.rulebook.has_rules() {
                return Err(NoDecision::NoRules);
            }
            if handler.limiter.store.decide(&mark).await?.is_over(0) {
                return Ok(Committed::Already);
            }
            receipt = hold.receipt;
        }
        request.set_hold(Some(&receipt));
        let answer = |decision: &Decision| {
            let settles = decision.charges().filter_map(|(charged, _)| decision.settle(charged.index));
            let is_lost = settles.into_iter().any(|settle| settle.result == SettleResult::Lost);
            (!is_lost).then(|| A::from(Answer::new(&request, decision, &handler.response)))
        };
        match handler.decide_read(&request, answer, span).await {
            Ok(answer) => Ok(answer.map_or(Committed::Lost, Committed::Settled)),
            Err(NoDecision::Store(_)) => Ok(Committed::Lost),
            Err(error) => Err(error),
        }
    };
    let committed = committed.await;
    let result = committed.as_ref().map_or("error", Into::into);
    handler.limiter.rulebook.metrics.count_hold("commit", result);
    committed.map_err(|error| handler.fail(error, span))
}

fn read_hold(
    bounds: &Bounds,
    request: RawRequest,
    CallOrigin { caller, rights }: CallOrigin,
    needed: &[Right],
) -> Result<Request, NoDecision> {
    let request = Request { caller, ..request.validate(bounds)? };
    needed.iter().try_for_each(|right| rights.check(*right))?;
    for descriptor in &request.descriptors {
        if descriptor.limit.is_some() {
            rights.check(Right::Limits)?;
        }
        if descriptor.is_refund || descriptor.attached.is_some() {
            return Err(NO_HOLD);
        }
    }
    Ok(request)
}
