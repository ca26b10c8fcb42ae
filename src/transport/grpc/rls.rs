//! `ShouldRateLimit`: passes the message to the handler. The conversions are trait implementations: `convert.rs` for
//! the message and the answer, `status.rs` for an error (at the `?`).

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
