//! `ShouldRateLimit`: converts the request, has the handler decide it, converts the answer.

use tonic::{Request, Response, Status};

use super::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use super::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use crate::engine::Store;
use crate::transport::Handler;

#[tonic::async_trait]
impl<S: Store + 'static> RateLimitService for Handler<S> {
    async fn should_rate_limit(
        &self,
        call: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        Ok(Response::new(self.decide(call.into_inner()).await?))
    }
}
