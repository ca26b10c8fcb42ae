//! Kuadrant's service, by a client of the messages in `proto/`, whose fields `tests/contract` lists.

use ratelimitd::grpc::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratelimitd::grpc::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use ratelimitd::grpc::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use ratelimitd::grpc::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratelimitd::grpc::pb::kuadrant::service::ratelimit::v1::rate_limit_service_client::RateLimitServiceClient;
use ratelimitd::grpc::pb::kuadrant::service::ratelimit::v1::{
    CommitRequest, ReserveRequest, ReserveResponse,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code as Grpc, Status};

use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};

const RULES: &str = "
domain: llm
descriptors:
  - { key: tenant, rate_limit: { unit: year, requests_per_unit: 100, algorithm: fixed_window } }
  - { key: default, rate_limit: { unit: year, requests_per_unit: 100 } }
";

fn service() -> Ratelimitd {
    Plan::new(RULES).server_of(module_path!()).start()
}

async fn connect(service: &Ratelimitd) -> RateLimitServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", service.grpc_port())).expect("a URL");
    RateLimitServiceClient::new(endpoint.connect().await.expect("a connection"))
}

fn descriptors(key: &str) -> Vec<RateLimitDescriptor> {
    let entries = vec![Entry { key: key.into(), value: "acme".into() }];
    vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }]
}

fn request(key: &str, hits_addend: u32) -> RateLimitRequest {
    RateLimitRequest { domain: "llm".into(), descriptors: descriptors(key), hits_addend }
}

type Client = RateLimitServiceClient<Channel>;

async fn reserve(client: &mut Client, key: &str, amount: u64) -> ReserveResponse {
    let ttl = Some(prost_types::Duration { seconds: 1, nanos: 0 });
    let message = ReserveRequest { domain: "llm".into(), descriptors: descriptors(key), amount, ttl };
    client.reserve(message).await.expect("an answer").into_inner()
}

async fn commit(client: &mut Client, key: &str, id: &str, actual_amount: u64) -> Result<bool, Status> {
    let (domain, descriptors) = ("llm".into(), descriptors(key));
    let message = CommitRequest { domain, descriptors, reservation_id: id.into(), actual_amount };
    client.commit(message).await.map(|answer| answer.into_inner().reservation_released)
}

#[tokio::test]
async fn an_estimate_is_reserved_and_the_real_cost_committed() {
    let service = service();
    let mut client = connect(&service).await;
    for key in ["tenant", "default"] {
        let left = || service.left("llm", (key, "acme"));
        let reserved = reserve(&mut client, key, 80).await;
        assert_eq!((reserved.code(), left()), (Code::Ok, 20), "{key}");
        let denied = reserve(&mut client, key, 21).await;
        assert_eq!(
            (denied.code(), denied.reservation_id.as_str(), left()),
            (Code::OverLimit, "", 20),
            "{key}"
        );
        assert_eq!(commit(&mut client, key, &reserved.reservation_id, 30).await.ok(), Some(true), "{key}");
        assert_eq!(left(), 70, "{key}");
        assert_eq!(commit(&mut client, key, &reserved.reservation_id, 30).await.ok(), Some(false), "{key}");
        assert_eq!(left(), 70, "{key}: a hold is committed once");
    }
}

#[tokio::test]
async fn a_reservation_of_nothing_is_a_check_whose_commit_books_all() {
    let service = service();
    let mut client = connect(&service).await;
    let left = || service.left("llm", ("tenant", "acme"));
    let reserved = reserve(&mut client, "tenant", 0).await;
    assert_eq!((reserved.code(), reserved.reservation_id.is_empty(), left()), (Code::Ok, false, 100));
    assert_eq!(commit(&mut client, "tenant", &reserved.reservation_id, 30).await.ok(), Some(true));
    assert_eq!(left(), 70);
    assert_eq!(commit(&mut client, "tenant", "", 30).await.ok(), Some(false), "nothing was reserved");
    assert_eq!(left(), 40);
    let unreadable = commit(&mut client, "tenant", "abc", 30).await.expect_err("no id");
    assert_eq!((unreadable.code(), unreadable.message()), (Grpc::InvalidArgument, "the id cannot be read"));
    assert_eq!(commit(&mut client, "tenant", "h1.1.1.z", 30).await.ok(), Some(false), "expired");
    assert_eq!(left(), 40);
    assert_eq!(commit(&mut client, "tenant", "", 500).await.ok(), Some(false));
    assert_eq!(reserve(&mut client, "tenant", 0).await.code(), Code::OverLimit);
}

#[tokio::test]
async fn a_check_takes_nothing_and_a_report_denies_nothing() {
    let service = service();
    let mut client = connect(&service).await;
    for key in ["tenant", "default"] {
        let left = || service.left("llm", (key, "acme"));
        let checked = client.check_rate_limit(request(key, 7)).await.expect("an answer").into_inner();
        assert_eq!((checked.overall_code(), left()), (Code::Ok, 100), "{key}");
        let reported = client.report(request(key, 7)).await.expect("an answer").into_inner();
        assert_eq!((reported.overall_code(), left()), (Code::Ok, 93), "{key}");
        let reported = client.report(request(key, 500)).await.expect("an answer").into_inner();
        assert_eq!((reported.overall_code(), reported.statuses.len()), (Code::Ok, 1), "{key}");
        let checked = client.check_rate_limit(request(key, 0)).await.expect("an answer").into_inner();
        assert_eq!(checked.overall_code(), Code::OverLimit, "{key}");
    }
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    assert!(
        metrics.contains("ratelimitd_request_duration_seconds_count{transport=\"grpc\"} 8\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn an_invalid_call_is_refused_and_counted() {
    let service = service();
    let mut client = connect(&service).await;
    let empty = client.reserve(ReserveRequest::default()).await.expect_err("no domain");
    assert_eq!(empty.code(), Grpc::InvalidArgument);
    let mut negative = request("tenant", 1);
    negative.descriptors[0].is_negative_hits = true;
    assert_eq!(client.report(negative).await.expect_err("negative hits").code(), Grpc::InvalidArgument);
    let long = CommitRequest { reservation_id: vec![b'x'; 1 << 20], ..CommitRequest::default() };
    assert_eq!(client.commit(long).await.expect_err("a long message").code(), Grpc::OutOfRange);
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let counted = "ratelimitd_request_errors_total{kind=\"invalid\",transport=\"grpc\"} 3\n";
    assert!(metrics.contains(counted), "{metrics}");
}
