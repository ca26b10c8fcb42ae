//! Holds: a caller reserves an estimate, and commits the real cost, at most once and before the end. The id of a hold
//! contains the reservation's receipt. A commit sets a mark, then settles.

use std::time::Duration;

use engine::{Bounds, Decision, Entry, Hold, RENEW_KEY, RawRequest, Receipt, Request, SettleResult, Store};
use strum::IntoStaticStr;

use super::{Answer, CallOrigin, Handler, NoDecision, Right};
use crate::telemetry::traces::CallSpan;

const NO_HOLD: NoDecision =
    NoDecision::invalid("a hold has no negative hits, and neither a receipt nor a pause as last entry");

const BAD_ID: NoDecision = NoDecision::invalid("the id cannot be read");
const ENDED: NoDecision =
    NoDecision::invalid("the hold has ended or is committed, so its slots are not renewed");

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
    /// The store did not answer. The estimate stays, unless the store settled nevertheless.
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
        handler.decide_hold(&request, answer, span).await
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
        if let Some(id) = id {
            let now_us = handler.limiter.clock.now_us();
            let hold = Hold::read(&id, now_us).ok_or(BAD_ID)?;
            let Some(mark) = hold.mark(now_us) else { return Ok(Committed::Expired) };
            request.set_hold(Some(&hold.receipt));
            // After the mark it would be too late to refuse.
            handler.limiter.check(&request)?;
            match handler.limiter.store.decide(&mark).await {
                Ok(marked) if marked.is_over(0) => return Ok(Committed::Already),
                Ok(_) => (),
                Err(error) if error.is_unseen() => return Err(error.into()),
                Err(_) => return Ok(Committed::Lost),
            }
        } else {
            request.set_hold(Some(&Receipt::new(0)));
        }
        let answer = |decision: &Decision| {
            let settles = decision.charges().filter_map(|(charged, _)| decision.settle(charged.index));
            let is_lost = settles.into_iter().any(|settle| settle.result == SettleResult::Lost);
            (!is_lost).then(|| A::from(Answer::new(&request, decision, &handler.response)))
        };
        match handler.decide_hold(&request, answer, span).await {
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

/// Renews a hold's slots.
pub(crate) async fn renew<S: Store, A: for<'a> From<Answer<'a>>>(
    handler: &Handler<S>,
    read: Result<(RawRequest, String), NoDecision>,
    CallOrigin { caller, rights }: CallOrigin,
    span: &mut CallSpan,
) -> Result<A, NoDecision> {
    let _timer = handler.meter.start();
    let limiter = &handler.limiter;
    let renewed = async {
        let (mut request, id) = read?;
        let hold = Hold::read(&id, limiter.clock.now_us()).ok_or(BAD_ID)?;
        let entry = Entry { key: RENEW_KEY.to_owned(), value: hold.receipt.to_string() };
        request.descriptors.iter_mut().for_each(|descriptor| descriptor.entries.push(entry.clone()));
        let mut request = Request { caller, ..request.validate(&handler.bounds)? };
        rights.check_request(&mut request)?;
        let mark = hold.peek(limiter.clock.now_us()).ok_or(ENDED)?;
        let answer = |decision: &Decision| {
            (A::from(Answer::new(&request, decision, &handler.response)), decision.renewed())
        };
        let (answer, release) = handler.decide_hold(&request, answer, span).await?;
        // After the renewal: a commit that comes later releases the slots.
        if !limiter.store.decide(&mark).await?.is_over(0) {
            return Ok(answer);
        }
        for part in release.parts() {
            limiter.store.decide(&part.charges).await?;
        }
        Err(ENDED)
    };
    renewed.await.map_err(|error| handler.fail(error, span))
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
