//! Readiness: an outage leaves a process ready, a store that was never reached or that rejects it does not.

use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{Fixture, RULES};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::{http, wait};

/// What `/readyz` says, once every health endpoint says the same: a change may come between two looks.
async fn readiness(service: &Ratelimitd) -> Result<(), String> {
    let agreed = wait::until_async(wait::PATIENCE, async || agreed_readiness(service).await).await;
    agreed.expect("the health endpoints do not agree")
}

async fn agreed_readiness(service: &Ratelimitd) -> Option<Result<(), String>> {
    let get = |path| http::get(service.http_port(), path, &[]).expect("an answer");
    let (ready, check) = (get("/readyz"), get("/healthcheck"));
    let endpoint = format!("http://127.0.0.1:{}", service.grpc_port());
    let channel = tonic::transport::Endpoint::from_shared(endpoint).expect("a URL").connect().await;
    let mut health = HealthClient::new(channel.expect("gRPC is served"));
    let request = HealthCheckRequest { service: "ratelimit".to_owned() };
    let said = health.check(request).await.expect("health").into_inner().status;
    assert_eq!(get("/livez").status, 200);
    let is_ready = ready.status == 200;
    let all_agree = (check.status == 200) == is_ready && (said == ServingStatus::Serving as i32) == is_ready;
    all_agree.then_some(if is_ready { Ok(()) } else { Err(ready.body) })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_memory_store_is_ready_at_once() {
    let service = Ratelimitd::start(RULES);
    assert_eq!(readiness(&service).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_still_ready() {
    let mut redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), "1s").await;
    assert_eq!(readiness(&fixture.service).await, Ok(()));
    redis.stop();
    fixture.first_failure().await;
    fixture.breaker_opens().await;
    assert_eq!(readiness(&fixture.service).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_was_never_reached_is_not() {
    let mut redis = Redis::start();
    redis.stop();
    let service = Plan::new(RULES).redis(&redis.url()).wait_for_livez().start();
    assert_eq!(readiness(&service).await, Err("not ready: the store has not answered yet\n".to_owned()));
    redis.restart();
    assert!(wait::until_async(wait::PATIENCE, async || readiness(&service).await.ok()).await.is_some());
}

/// A misconfigured instance is not ready until the server accepts it, without a restart.
async fn assert_not_ready_until(redis: &Redis, url: &str, correct: impl FnOnce(&Redis)) {
    let service = Plan::new(RULES).redis(url).wait_for_livez().start();
    let rejected = wait::until_async(wait::PATIENCE, async || {
        readiness(&service).await.err().filter(|reasons| reasons.contains("rejects this process"))
    });
    assert!(rejected.await.is_some(), "{}", service.log());
    assert!(
        service
            .log()
            .contains("Redis rejects the credentials, permissions or database of this process: not ready"),
        "{}",
        service.log()
    );
    assert!(!service.log().contains("hunter"), "{}", service.log());
    correct(redis);
    let ready = wait::until_async(wait::PATIENCE, async || readiness(&service).await.ok());
    assert!(ready.await.is_some(), "{}", service.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_password_is_a_misconfiguration() {
    let redis = Redis::start();
    redis.run::<()>(&["CONFIG", "SET", "requirepass", "hunter2"]).expect("CONFIG SET");
    assert_not_ready_until(&redis, &redis.url(), |redis| {
        redis.run_with_password::<()>("hunter2", &["CONFIG", "SET", "requirepass", ""]).expect("CONFIG SET");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_a_misconfiguration() {
    let redis = Redis::start();
    redis.run::<()>(&["CONFIG", "SET", "requirepass", "hunter2"]).expect("CONFIG SET");
    let wrong = format!("redis://:hunter3@{}/", redis.address());
    assert_not_ready_until(&redis, &wrong, |redis| {
        let change = ["CONFIG", "SET", "requirepass", "hunter3"];
        redis.run_with_password::<()>("hunter2", &change).expect("CONFIG SET");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_a_misconfiguration() {
    let redis = Redis::start();
    redis.run::<()>(&["ACL", "SETUSER", "default", "-evalsha"]).expect("ACL SETUSER");
    assert_not_ready_until(&redis, &redis.url(), |redis| {
        redis.run::<()>(&["ACL", "SETUSER", "default", "+@all"]).expect("ACL SETUSER");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_not_there_is_a_misconfiguration() {
    let redis = Redis::start();
    let service = Plan::new(RULES).redis(&format!("redis://{}/99", redis.address())).wait_for_livez().start();
    let rejected = wait::until_async(wait::PATIENCE, async || {
        readiness(&service).await.err().filter(|reasons| reasons.contains("rejects this process"))
    });
    assert!(rejected.await.is_some(), "{}", service.log());
}

#[test]
fn a_process_without_its_redis_is_alive_and_not_ready() {
    let mut redis = Redis::start();
    redis.stop();
    let service = Plan::new(RULES).redis(&redis.url()).wait_for_livez().start();
    let ready = || http::get(service.http_port(), "/readyz", &[]).expect("an answer").status == 200;
    assert!(!ready());
    redis.restart();
    wait::expect("readiness, now that Redis is back", ready);
}

#[test]
fn a_store_that_never_answered_is_the_reason_for_not_being_ready() {
    let mut redis = Redis::start();
    redis.stop();
    let service = Plan::new(RULES).redis(&redis.url()).wait_for_livez().start();
    let page = |path| http::get(service.http_port(), path, &[]).expect("an answer");
    let ready = page("/readyz");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("the store has not answered yet"), "{}", ready.body);
    let health = page("/healthcheck");
    assert_eq!((health.status, health.body.as_str()), (500, ""));

    redis.restart();
    wait::expect("readiness once Redis answers", || page("/readyz").status == 200);
    redis.stop();
    assert_eq!(page("/readyz").status, 200, "later outages are answered by the rules' own policies");
}
