//! A client for `ShouldRateLimit` whose messages come from the crate `envoy-types`, so that a mistake in the
//! protobuf files of this project cannot be in client and server alike.

use std::time::Duration;

pub use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
pub use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
pub use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// The timeout of every call.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One HTTP/2 connection to a service. Clones share it.
#[derive(Clone)]
pub struct Rls(RateLimitServiceClient<Channel>);

impl Rls {
    /// Connects to a gRPC port of this machine.
    pub async fn connect(port: u16) -> Self {
        let endpoint =
            Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a URL").timeout(TIMEOUT);
        let channel =
            endpoint.connect().await.unwrap_or_else(|error| panic!("no gRPC on port {port}: {error}"));
        Self(RateLimitServiceClient::new(channel))
    }

    /// Sends a request without changes.
    ///
    /// # Errors
    /// The status that the service or the transport returns.
    pub async fn send(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.0.should_rate_limit(request).await.map(tonic::Response::into_inner)
    }

    /// Sends one descriptor without `hits_addend` and expects an answer: the overall code and the descriptor's status.
    pub async fn send_one(&mut self, domain: &str, entries: &[(&str, &str)]) -> (Code, DescriptorStatus) {
        let mut response = self.send(request(domain, vec![descriptor(entries)])).await.expect("an answer");
        assert_eq!(response.statuses.len(), 1, "one status per descriptor: {response:?}");
        (response.overall_code(), response.statuses.remove(0))
    }
}

/// A request that has only these descriptors.
pub fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, ..RateLimitRequest::default() }
}

/// A descriptor that has only these entries.
pub fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}
