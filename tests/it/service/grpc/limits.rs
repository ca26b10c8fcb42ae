//! Costs, peeks, refunds, overrides in the request, and exact limits under concurrency.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use futures_util::future::join_all;
use ratelimitd::grpc::pb::envoy::extensions::common::ratelimit::v3 as ours;
use ratelimitd::grpc::pb::envoy::service::ratelimit::v3 as contract;
use ratelimitd::grpc::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::{decide_one, request_for, service, with_hits};
use crate::support::grpc::{Code, RateLimitDescriptor, Rls, descriptor};
use crate::support::process::Plan;

#[tokio::test]
async fn hits_of_the_descriptor_override_those_of_the_request() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut team = async |request_hits, descriptor_hits: Option<u64>| {
        let descriptor =
            descriptor_hits.map_or_else(|| descriptor(&[("team", "t")]), |hits| with_hits("team", "t", hits));
        let mut request = request_for(vec![descriptor]);
        request.hits_addend = request_hits;
        let answer = rls.send(request).await.expect("an answer");
        (answer.overall_code(), answer.statuses[0].limit_remaining)
    };
    // Hits of the request, hits of the descriptor; the remaining units of 10.
    assert_eq!(team(0, None).await, (Code::Ok, 9), "0 means 1");
    assert_eq!(team(2, None).await, (Code::Ok, 7));
    assert_eq!(team(9, Some(3)).await, (Code::Ok, 4));
    assert_eq!(team(9, Some(0)).await, (Code::Ok, 4), "a peek takes nothing");
    assert_eq!(team(0, Some(4)).await, (Code::Ok, 0));
    assert_eq!(team(0, Some(0)).await, (Code::OverLimit, 0), "a peek reports whether one more unit fits");
}

#[tokio::test]
async fn a_refund_returns_units() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let refund = |hits| RateLimitDescriptor { is_negative_hits: true, ..with_hits("team", "t", hits) };
    assert_eq!(decide_one(&mut rls, with_hits("team", "t", 10)).await, (Code::Ok, 0));
    assert_eq!(decide_one(&mut rls, refund(3)).await, (Code::Ok, 3));
    assert_eq!(decide_one(&mut rls, refund(u64::MAX)).await, (Code::Ok, 10), "never above the limit");
    assert_eq!(decide_one(&mut rls, with_hits("team", "t", 1)).await, (Code::Ok, 9));
}

#[tokio::test]
async fn a_cost_above_the_limit_is_denied_and_takes_nothing() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(decide_one(&mut rls, with_hits("slow", "v", u64::MAX)).await, (Code::OverLimit, 1));
    assert_eq!(
        decide_one(&mut rls, with_hits("slow", "v", 1)).await,
        (Code::Ok, 0),
        "prepaid: nothing was taken"
    );
    assert_eq!(
        decide_one(&mut rls, with_hits("blocked", "v", 1)).await.0,
        Code::OverLimit,
        "a limit of 0 denies every request"
    );
}

fn with_override(requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    let limit = Some(RateLimitOverride { requests_per_unit, unit });
    RateLimitDescriptor { limit, ..descriptor(&[("user", "own"), ("any", "entry")]) }
}

#[tokio::test]
async fn an_override_replaces_the_rules() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let answer = rls.send(request_for(vec![with_override(2, 4)])).await.expect("an answer");
    let limit = answer.statuses[0].current_limit.clone().expect("a limit");
    assert_eq!((limit.requests_per_unit, limit.unit, limit.name.as_str()), (2, 4, ""));
    assert_eq!(answer.statuses[0].limit_remaining, 1);
    assert_eq!(
        decide_one(&mut rls, with_override(0, 4)).await.0,
        Code::OverLimit,
        "a limit of 0 denies every request"
    );

    let (_, unknown) = rls.send_one("unknown", &[("user", "own")]).await;
    assert_eq!(unknown.current_limit, None, "an unknown domain has no limits");
}

#[tokio::test]
async fn an_undefined_unit_is_refused_and_nothing_is_charged() {
    let service = service();
    let mut rls = Rls::connect(service.grpc_port()).await;
    for unit in [0, 8, 99, -1, i32::MAX] {
        let request = request_for(vec![descriptor(&[("user", "v")]), with_override(5, unit)]);
        let error = rls.send(request).await.expect_err("the unit is not defined");
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
        assert_eq!(error.message(), format!("descriptor 1: the limit's unit {unit} is not defined"));
    }
    assert_eq!(
        decide_one(&mut rls, descriptor(&[("user", "v")])).await,
        (Code::Ok, 2),
        "nothing was charged"
    );
}

/// The crate `envoy-types` has no `unit_multiplier`, so this test uses the messages of this project.
#[tokio::test]
async fn multipliers_are_received_and_sent() {
    let service = service();
    let address = format!("http://127.0.0.1:{}", service.grpc_port());
    let mut client = RateLimitServiceClient::connect(address).await.expect("a connection");
    let mut send = async |key: &str, limit: Option<ours::rate_limit_descriptor::RateLimitOverride>| {
        let entry = ours::rate_limit_descriptor::Entry { key: key.as_bytes().to_vec(), value: b"v".to_vec() };
        let descriptor =
            ours::RateLimitDescriptor { entries: vec![entry], limit, ..ours::RateLimitDescriptor::default() };
        let request = contract::RateLimitRequest {
            domain: b"test".to_vec(),
            descriptors: vec![descriptor],
            hits_addend: 0,
        };
        let answered = client.should_rate_limit(request).await.map(tonic::Response::into_inner);
        answered
            .map(|answer| answer.statuses[0].current_limit.as_ref().and_then(|limit| limit.unit_multiplier))
    };
    let sent = |unit, multiplier| {
        let unit_multiplier = Some(multiplier);
        Some(ours::rate_limit_descriptor::RateLimitOverride { requests_per_unit: 5, unit, unit_multiplier })
    };
    assert_eq!(send("wide", None).await.expect("an answer"), Some(10));
    assert_eq!(send("user", None).await.expect("an answer"), None, "a multiplier of 1 is not sent");
    assert_eq!(send("user", sent(2, 30)).await.expect("an answer"), Some(30));
    for (unit, multiplier, reason) in [
        (2, 0, "descriptor 0: the limit's unit_multiplier must not be 0"),
        (6, 2, "descriptor 0: the limit's period is longer than 366 days"),
        (1, u32::MAX, "descriptor 0: the limit's period is longer than 366 days"),
    ] {
        let error = send("user", sent(unit, multiplier)).await.expect_err(reason);
        assert_eq!((error.code(), error.message()), (tonic::Code::InvalidArgument, reason));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_thousand_concurrent_calls_exactly_the_limit_is_admitted() {
    const RULES: &str = "
domain: concurrent
descriptors:
  - { key: fixed_window, rate_limit: { unit: year, requests_per_unit: 100 } }
  - { key: sliding_window, rate_limit: { unit: year, requests_per_unit: 100, algorithm: sliding_window } }
  - { key: sliding_log, rate_limit: { unit: year, requests_per_unit: 100, algorithm: sliding_log } }
  - { key: gcra, rate_limit: { unit: year, requests_per_unit: 100, algorithm: gcra } }
  - { key: token_bucket, rate_limit: { unit: year, requests_per_unit: 100, algorithm: token_bucket } }
  - { key: leaky_bucket, rate_limit: { unit: year, requests_per_unit: 100, algorithm: leaky_bucket } }
";
    let service = Plan::new(RULES).server_of(module_path!()).start();
    let connections = join_all((0..8).map(|_| Rls::connect(service.grpc_port()))).await;
    for key in ["fixed_window", "sliding_window", "sliding_log", "gcra", "token_bucket", "leaky_bucket"] {
        let calls = (0..2_000).map(|place| {
            let mut rls = connections[place % connections.len()].clone();
            async move { rls.send_one("concurrent", &[(key, "one")]).await.0 }
        });
        let admitted = join_all(calls).await.into_iter().filter(|code| *code == Code::Ok).count();
        assert_eq!(admitted, 100, "{key}");
    }
}
