//! The handler: convert, decide, convert.

use tonic::{Request, Response, Status};

use super::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use super::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::status;
use crate::engine::Store;
use crate::limiter::Limiter;
use crate::transport::error::CallError;
use crate::transport::{Answer, Bounds, ResponseOptions};

/// Answers `ShouldRateLimit`.
#[derive(Debug)]
pub struct Rls<S> {
    /// Decides.
    pub limiter: Limiter<S>,
    /// How large a request may be.
    pub bounds: Bounds,
    /// What answers carry.
    pub response: ResponseOptions,
}

#[tonic::async_trait]
impl<S: Store + 'static> RateLimitService for Rls<S> {
    async fn should_rate_limit(
        &self,
        call: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        match self.answer(call.into_inner()).await {
            Ok(response) => Ok(Response::new(response)),
            Err(error) => Err(status::of(&error)),
        }
    }
}

impl<S: Store> Rls<S> {
    async fn answer(&self, sent: RateLimitRequest) -> Result<RateLimitResponse, CallError> {
        let request = self.bounds.admit(sent.try_into()?)?;
        let decision = self.limiter.decide(&request).await?;
        let answer = Answer { request: &request, decision: &decision, options: &self.response };
        Ok(RateLimitResponse::from(&answer))
    }
}
