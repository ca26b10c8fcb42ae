//! Soft limits and limits that reserve, with counters in Redis: through both doors, and while Redis is away.

use envoy_types::pb::google::protobuf::UInt64Value;

use crate::service::soft_limits::{checks_take_and_charges_book, plan, soft_limits_are_announced};
use crate::support::grpc::{Code, RateLimitDescriptor, Rls, descriptor, request};
use crate::support::redis::Redis;

#[tokio::test]
async fn soft_limits_in_redis_are_announced() {
    let redis = Redis::start();
    soft_limits_are_announced(plan().redis(&redis.url())).await;
}

#[tokio::test]
async fn checks_in_redis_take_and_charges_book() {
    let redis = Redis::start();
    checks_take_and_charges_book(plan().redis(&redis.url())).await;
}

#[tokio::test]
async fn an_announced_limit_with_the_policy_error_fails_no_call_and_announces_nothing() {
    let mut redis = Redis::start();
    let service = plan().redis(&redis.url()).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let hits = |key: &str, units| {
        let hits_addend = Some(UInt64Value { value: units });
        RateLimitDescriptor { hits_addend, ..descriptor(&[(key, "a")]) }
    };
    let mut told = async |key: &str, units| {
        let answer = rls.send(request("d", vec![hits(key, units)])).await;
        answer
            .map(|answer| (answer.overall_code(), answer.request_headers_to_add.len()))
            .map_err(|error| error.code())
    };
    assert_eq!(told("soft", 11).await, Ok((Code::Ok, 1)));
    assert_eq!(told("tokens", 0).await, Ok((Code::Ok, 0)));
    redis.stop();
    assert_eq!(told("soft", 11).await, Ok((Code::Ok, 0)), "how much is used is not known");
    // The limit with reserve has the policy `error`, too. Its check fails; its charge, which denies nothing, does not.
    assert_eq!(told("tokens", 0).await, Err(tonic::Code::Unavailable));
    assert_eq!(told("tokens", 120).await, Ok((Code::Ok, 0)));
}
