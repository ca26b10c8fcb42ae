//! Limitador's library as a rate limit service, with the calls that Limitador's own server makes of it for a request.
//! The arguments are a part of that server's: `--rls-port PORT ... FILE memory` or `FILE redis URL`.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use limitador::limit::{Context, Limit};
use limitador::storage::redis::AsyncRedisStorage;
use limitador::{AsyncRateLimiter, RateLimiter};
use tonic::{Request, Response, Status};

/// More counters than the benchmark has keys.
const COUNTERS: u64 = 10_000;

enum Limiter {
    Memory(RateLimiter),
    Redis(AsyncRateLimiter),
}

#[tonic::async_trait]
impl RateLimitService for Limiter {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        let namespace = request.domain.into();
        let hits = u64::from(request.hits_addend.max(1));
        let values = request.descriptors.into_iter().map(|descriptor| {
            let entries = descriptor.entries.into_iter();
            entries.map(|entry| (entry.key, entry.value)).collect::<HashMap<_, _>>()
        });
        let mut context = Context::default();
        context.list_binding("descriptors".to_owned(), values.collect());
        let checked = match self {
            Self::Memory(limiter) => limiter.check_rate_limited_and_update(&namespace, &context, hits),
            Self::Redis(limiter) => limiter.check_rate_limited_and_update(&namespace, &context, hits).await,
        };
        let checked = checked.map_err(|error| Status::unavailable(error.to_string()))?;
        let code = if checked.limited { Code::OverLimit } else { Code::Ok };
        Ok(Response::new(RateLimitResponse { overall_code: code.into(), ..RateLimitResponse::default() }))
    }
}

/// The one limit of the file, whose shape the benchmark knows: only its value is read.
fn limit(file: &str) -> Limit {
    let text = std::fs::read_to_string(file).expect("a file of limits");
    let value = text.lines().find_map(|line| line.trim().strip_prefix("max_value: "));
    let value = value.and_then(|value| value.parse().ok()).expect("a line `max_value: NUMBER`");
    let variables = ["descriptors[0].user0", "descriptors[0].path"];
    let variables = variables.map(|variable| variable.try_into().expect("an expression"));
    Limit::new("bench", value, 1, vec![], variables)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().collect();
    let port = arguments.iter().skip_while(|argument| *argument != "--rls-port").nth(1);
    let port = port.expect("--rls-port PORT").parse()?;
    let limiter = match arguments.as_slice() {
        [.., file, storage] if storage == "memory" => {
            let limiter = RateLimiter::new(COUNTERS);
            limiter.add_limit(limit(file));
            Limiter::Memory(limiter)
        }
        [.., file, storage, url] if storage == "redis" => {
            let limiter = AsyncRateLimiter::new_with_storage(Box::new(AsyncRedisStorage::new(url).await?));
            limiter.add_limit(limit(file));
            Limiter::Redis(limiter)
        }
        _ => return Err("the last arguments are FILE memory, or FILE redis URL".into()),
    };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let service = RateLimitServiceServer::new(limiter);
    tonic::transport::Server::builder().add_service(service).serve(address).await?;
    Ok(())
}
