//! The other services of the gRPC port: health and reflection.

use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::service;
use crate::support::process::Ratelimitd;

async fn channel(service: &Ratelimitd) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", service.grpc_port())).expect("a URL");
    endpoint.connect().await.expect("a connection")
}

#[tokio::test]
async fn health_answers_for_the_names_that_clients_use() {
    let service = service();
    let mut health = HealthClient::new(channel(&service).await);
    let mut check = async |name: &str| {
        let answered = health.check(HealthCheckRequest { service: name.to_owned() }).await;
        answered.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
    };
    assert_eq!(check("").await, Ok(ServingStatus::Serving));
    assert_eq!(check("ratelimit").await, Ok(ServingStatus::Serving));
    assert_eq!(check("another").await, Err(tonic::Code::NotFound));
}

#[tokio::test]
async fn reflection_lists_the_services() {
    let service = service();
    let mut reflection = ServerReflectionClient::new(channel(&service).await);
    let symbol = "envoy.service.ratelimit.v3.RateLimitService".to_owned();
    let requests =
        [MessageRequest::ListServices(String::new()), MessageRequest::FileContainingSymbol(symbol)];
    let requests = requests
        .map(|request| ServerReflectionRequest { host: String::new(), message_request: Some(request) });
    let mut answers = reflection
        .server_reflection_info(tokio_stream::iter(requests))
        .await
        .expect("a stream of answers")
        .into_inner();
    let mut next =
        async || answers.message().await.expect("an answer").and_then(|answer| answer.message_response);

    let Some(MessageResponse::ListServicesResponse(list)) = next().await else { panic!("not a list") };
    let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    for name in [
        "envoy.service.ratelimit.v3.RateLimitService",
        "kuadrant.service.ratelimit.v1.RateLimitService",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    let Some(MessageResponse::FileDescriptorResponse(files)) = next().await else { panic!("no files") };
    assert!(!files.file_descriptor_proto.is_empty());
}
