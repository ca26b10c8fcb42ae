//! The contract with Envoy, in tonic's terms. Read it first: it is all that a gRPC call needs. `tonic_server` serves
//! it; `fast` answers the same calls with less work.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use engine::Store;
use futures_util::FutureExt as _;
use tonic::{Request, Response, Status};

use super::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use super::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::tonic_refusals::CallSpanSlot;
use super::tonic_server::Client;
use crate::decide::{CallOrigin, Handler, NoDecision};

/// Decides Envoy's requests with the handler that `/json` and `/check` share.
pub(super) struct DecisionService<S>(pub(super) Arc<Handler<S>>);

#[tonic::async_trait]
impl<S: Store + 'static> RateLimitService for DecisionService<S> {
    /// Returns a decision, or a status that says why there is none (`convert`).
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let Self(handler) = self;
        let Client { caller, certificate } = request.extensions().get().copied().unwrap_or_default();
        let origin =
            CallOrigin { caller, rights: handler.rights.of(request.metadata().as_ref(), certificate) };
        let mut span = request.extensions().get().and_then(CallSpanSlot::take).unwrap_or_default();
        let decided = handler.decide(|| Ok(request.into_inner().into()), origin, &mut span);
        // A panic ends only this call. Its message is in the log.
        let decided = AssertUnwindSafe(decided).catch_unwind().await;
        let answer = decided.unwrap_or_else(|_| handler.refuse(NoDecision::PANIC, &mut span))?;
        Ok(Response::new(answer))
    }
}
