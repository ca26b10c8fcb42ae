//! Asks ratelimitd over gRPC, with the messages of the crate `envoy-types`.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::value::Kind;
use tonic::Status;
use tonic::transport::{Channel, Endpoint, Error};

/// A client of the gRPC port. Clones share one connection.
#[derive(Clone)]
pub struct RateLimit(RateLimitServiceClient<Channel>);

/// How long to wait: before the work, or before the next try.
pub enum Answer {
    Admitted(Duration),
    Denied(Duration),
}

impl RateLimit {
    /// `address` is a host and a port. The connection is made when it is first needed, and again after it broke.
    pub fn new(address: &str) -> Result<Self, Error> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.timeout(Duration::from_secs(2));
        Ok(Self(RateLimitServiceClient::new(endpoint.connect_lazy())))
    }

    /// Asks for one hit. An error means that there is no decision: the caller says what its service does then.
    pub async fn ask(&self, domain: &str, key: &str, value: &str) -> Result<Answer, Status> {
        let entry = Entry { key: key.to_owned(), value: value.to_owned() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: vec![descriptor],
            ..Default::default()
        };
        let answer = self.0.clone().should_rate_limit(request).await?.into_inner();
        if answer.overall_code() != Code::OverLimit {
            return Ok(Answer::Admitted(delay(&answer)));
        }
        let over = answer.statuses.iter().filter(|status| status.code() == Code::OverLimit);
        Ok(Answer::Denied(over.map(until_reset).max().unwrap_or_default()))
    }

    /// Returns when the work may begin, with the number of denials before.
    pub async fn wait(&self, domain: &str, key: &str, value: &str) -> Result<u32, Status> {
        for denied in 0.. {
            match self.ask(domain, key, value).await? {
                Answer::Admitted(delay) => {
                    tokio::time::sleep(delay).await;
                    return Ok(denied);
                }
                Answer::Denied(wait) => tokio::time::sleep(wait).await,
            }
        }
        unreachable!("the loop has no end")
    }
}

fn until_reset(status: &DescriptorStatus) -> Duration {
    let wait = status.duration_until_reset.unwrap_or_default();
    Duration::new(wait.seconds.unsigned_abs(), wait.nanos.unsigned_abs())
}

/// The delay of a queue (`mode: queue`); no other limit sends one.
fn delay(answer: &RateLimitResponse) -> Duration {
    let field = answer.dynamic_metadata.as_ref().and_then(|metadata| metadata.fields.get("delay_ms"));
    match field.and_then(|value| value.kind.as_ref()) {
        Some(Kind::NumberValue(milliseconds)) => Duration::from_secs_f64(milliseconds / 1000.0),
        _ => Duration::ZERO,
    }
}
