//! A client for `ShouldRateLimit` whose messages come from the crate `envoy-types`, so that a mistake in the
//! protobuf files of this project cannot be in client and server alike.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
pub use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
pub use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::either::Either;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::tls;

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

    /// Connects to a gRPC port with TLS, whose certificate has the name [`tls::SERVER_NAME`].
    ///
    /// # Errors
    /// The text of the connection's error.
    pub async fn connect_tls(port: u16, config: Arc<ClientConfig>) -> Result<Self, String> {
        let connect = service_fn(move |_| {
            let config = Arc::clone(&config);
            async move { tls::connect(port, config).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_shared(format!("https://{}", tls::SERVER_NAME)).expect("a URL");
        let channel = endpoint.timeout(TIMEOUT).connect_with_connector(connect).await;
        Ok(Self(RateLimitServiceClient::new(channel.map_err(|error| format!("{error:?}"))?)))
    }

    /// Connects to a gRPC port that is a Unix socket, with or without TLS.
    ///
    /// # Errors
    /// The text of the connection's error.
    pub async fn connect_unix(path: &Path, tls: Option<Arc<ClientConfig>>) -> Result<Self, String> {
        let path = path.to_owned();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let connect = service_fn(move |_| {
            let (path, tls) = (path.clone(), tls.clone());
            async move {
                let stream: Either<_, _> = match tls {
                    None => Either::Left(UnixStream::connect(&path).await?),
                    Some(config) => Either::Right(tls::connect_unix(&path, config).await?),
                };
                io::Result::Ok(TokioIo::new(stream))
            }
        });
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", tls::SERVER_NAME)).expect("a URL");
        let channel = endpoint.timeout(TIMEOUT).connect_with_connector(connect).await;
        Ok(Self(RateLimitServiceClient::new(channel.map_err(|error| format!("{error:?}"))?)))
    }

    /// Sends a request without changes.
    ///
    /// # Errors
    /// The status that the service or the transport returns.
    pub async fn send(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, Status> {
        self.0.should_rate_limit(request).await.map(tonic::Response::into_inner)
    }

    /// Sends a request with these headers.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_with(
        &mut self,
        request: RateLimitRequest,
        headers: &[(&'static str, &str)],
    ) -> Result<RateLimitResponse, Status> {
        let mut request = tonic::Request::new(request);
        for &(name, value) in headers {
            request.metadata_mut().insert(name, value.parse().expect("a value of a header"));
        }
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
