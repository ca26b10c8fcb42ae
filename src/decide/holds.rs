//! Holds: a caller reserves an estimate, and commits the real cost, at most once and within a time. A reservation is a
//! decision whose receipt is in the id; a commit is a settle, after a mark that it is the first.

use std::time::Duration;

use engine::wire::RawRequest;
use engine::{Decision, Hold, Receipt, Request, Store};

use super::{Answer, CallOrigin, Handler, NoDecision, Right};
use crate::telemetry::metrics::{CommitResult, ReserveResult};
use crate::telemetry::traces::CallSpan;

const UNREADABLE: NoDecision = NoDecision::invalid("the id cannot be read");
const NO_HOLD: NoDecision =
    NoDecision::invalid("a hold has no negative hits, and neither a receipt nor a pause as last entry");

impl<S: Store> Handler<S> {
    /// Decides the request that `read` returns, with the time for its commit. There is a hold if it is admitted.
    pub(crate) async fn reserve<A: for<'a> From<Answer<'a>>>(
        &self,
        read: impl FnOnce() -> Result<(RawRequest, Duration), NoDecision>,
        origin: CallOrigin,
        span: &mut CallSpan,
    ) -> Result<(A, Option<Hold>), NoDecision> {
        let _timer = self.meter.start();
        let reserved = self.reserve_read(read, origin, span).await;
        self.limiter.rulebook.metrics.families.holds.reserved.count(match &reserved {
            Ok((_, Some(_))) => ReserveResult::Ok,
            Ok((_, None)) => ReserveResult::OverLimit,
            Err(_) => ReserveResult::Error,
        });
        reserved.map_err(|error| self.fail(error, span))
    }

    async fn reserve_read<A: for<'a> From<Answer<'a>>>(
        &self,
        read: impl FnOnce() -> Result<(RawRequest, Duration), NoDecision>,
        origin: CallOrigin,
        span: &mut CallSpan,
    ) -> Result<(A, Option<Hold>), NoDecision> {
        let (request, ttl) = read()?;
        let mut request = self.read_hold(request, origin, &[Right::Charge])?;
        request.set_hold(None);
        let answer = |decision: &Decision| {
            let receipt = decision.receipt_of_hold(|| fastrand::u64(..));
            let hold = receipt.map(|receipt| Hold::new(receipt, self.limiter.clock.now_us(), ttl));
            (A::from(Answer::new(&request, decision, &self.response)), hold)
        };
        self.decide_read(&request, answer, span).await
    }

    /// Books the real cost that `read` returns, with the id of its hold. Without an id, as that of a hold that reserved
    /// nothing, and each time. There is an answer if the result is [`CommitResult::Settled`].
    pub(crate) async fn commit<A: for<'a> From<Answer<'a>>>(
        &self,
        read: impl FnOnce() -> Result<(RawRequest, Option<String>), NoDecision>,
        origin: CallOrigin,
        span: &mut CallSpan,
    ) -> Result<(CommitResult, Option<A>), NoDecision> {
        let _timer = self.meter.start();
        let committed = self.commit_read(read, origin, span).await;
        let result = committed.as_ref().map_or(CommitResult::Error, |(result, _)| *result);
        self.limiter.rulebook.metrics.families.holds.committed.count(result);
        committed.map_err(|error| self.fail(error, span))
    }

    async fn commit_read<A: for<'a> From<Answer<'a>>>(
        &self,
        read: impl FnOnce() -> Result<(RawRequest, Option<String>), NoDecision>,
        origin: CallOrigin,
        span: &mut CallSpan,
    ) -> Result<(CommitResult, Option<A>), NoDecision> {
        let (request, id) = read()?;
        // Nobody signs an id, so whoever commits can give back units.
        let rights = if id.is_some() { &[Right::Charge, Right::Refund][..] } else { &[Right::Charge] };
        let mut request = self.read_hold(request, origin, rights)?;
        let mut receipt = Receipt::new(0);
        if let Some(id) = id {
            let now_us = self.limiter.clock.now_us();
            let hold = Hold::read(&id, now_us).map_err(|_| UNREADABLE)?;
            let Some(mark) = hold.mark(now_us) else { return Ok((CommitResult::Expired, None)) };
            if !self.limiter.rulebook.has_rules() {
                return Err(NoDecision::NoRules);
            }
            if self.limiter.store.decide(&mark).await?.is_over(0) {
                return Ok((CommitResult::Already, None));
            }
            receipt = hold.receipt;
        }
        request.set_hold(Some(&receipt));
        let answer = |decision: &Decision| {
            let answer = A::from(Answer::new(&request, decision, &self.response));
            (!decision.has_lost_settle()).then_some(answer)
        };
        match self.decide_read(&request, answer, span).await {
            Ok(Some(answer)) => Ok((CommitResult::Settled, Some(answer))),
            Ok(None) | Err(NoDecision::Store(_)) => Ok((CommitResult::Lost, None)),
            Err(error) => Err(error),
        }
    }

    fn read_hold(
        &self,
        request: RawRequest,
        CallOrigin { caller, rights }: CallOrigin,
        needed: &[Right],
    ) -> Result<Request, NoDecision> {
        let request = Request { caller, ..request.validate(&self.bounds)? };
        needed.iter().try_for_each(|right| rights.check(*right))?;
        if request.descriptors.iter().any(|descriptor| descriptor.limit.is_some()) {
            rights.check(Right::Limits)?;
        }
        if request.descriptors.iter().any(|descriptor| descriptor.is_refund || descriptor.attached.is_some())
        {
            return Err(NO_HOLD);
        }
        Ok(request)
    }
}
