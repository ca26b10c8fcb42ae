//! The contract with Envoy, in tonic's terms. Read it first: it is all that a gRPC call needs. `tonic_server` serves
//! it; `fast` answers the same calls with less work.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use engine::Store;
use futures_util::FutureExt as _;
use tonic::{Request, Response, Status};

use super::kuadrant::{self, Answered, Call};
use super::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use super::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::pb::kuadrant::service::ratelimit::v1::rate_limit_service_server::RateLimitService as KuadrantService;
use super::pb::kuadrant::service::ratelimit::v1::{
    CommitRequest, CommitResponse, ReserveRequest, ReserveResponse,
};
use super::tonic_refusals::CallSpanSlot;
use super::tonic_server::Client;
use crate::decide::{CallOrigin, Handler, NoDecision};

/// Decides Envoy's requests with the handler that `/json` and `/check` share.
pub(super) struct DecisionService<S>(pub(super) Arc<Handler<S>>);

type Answer<A> = Result<Response<A>, Status>;

impl<S: Store> DecisionService<S> {
    /// Returns a decision, or a status that says why there is none (`convert`).
    async fn answer<M, A>(
        &self,
        request: Request<M>,
        decide: impl for<'a> FnOnce(Call<'a, S, M>) -> Answered<'a, A>,
    ) -> Answer<A> {
        let Self(handler) = self;
        let Client { caller, certificate } = request.extensions().get().copied().unwrap_or_default();
        let origin =
            CallOrigin { caller, rights: handler.rights.of(request.metadata().as_ref(), certificate) };
        let mut span = request.extensions().get().and_then(CallSpanSlot::take).unwrap_or_default();
        let decided = decide(Call { handler, message: Ok(request.into_inner()), origin, span: &mut span });
        // A panic ends only this call. Its message is in the log.
        let decided = AssertUnwindSafe(decided).catch_unwind().await;
        let answer = decided.unwrap_or_else(|_| Err(handler.fail(NoDecision::PANIC, &mut span)))?;
        Ok(Response::new(answer))
    }
}

#[tonic::async_trait]
impl<S: Store + 'static> RateLimitService for DecisionService<S> {
    async fn should_rate_limit(&self, request: Request<RateLimitRequest>) -> Answer<RateLimitResponse> {
        self.answer(request, |Call { handler, message, origin, span }| {
            Box::pin(handler.decide(|| Ok(message?.into()), origin, span))
        })
        .await
    }
}

#[tonic::async_trait]
impl<S: Store + 'static> KuadrantService for DecisionService<S> {
    async fn check_rate_limit(&self, request: Request<RateLimitRequest>) -> Answer<RateLimitResponse> {
        self.answer(request, kuadrant::check).await
    }

    async fn report(&self, request: Request<RateLimitRequest>) -> Answer<RateLimitResponse> {
        self.answer(request, kuadrant::report).await
    }

    async fn reserve(&self, request: Request<ReserveRequest>) -> Answer<ReserveResponse> {
        self.answer(request, kuadrant::reserve).await
    }

    async fn commit(&self, request: Request<CommitRequest>) -> Answer<CommitResponse> {
        self.answer(request, kuadrant::commit).await
    }
}
