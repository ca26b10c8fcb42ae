//! An outage while the log cannot be written: the service recovers as it does with a log.

use std::fs::File;

use super::{Fixture, RULES};
use crate::service::logging::lost_lines;
use crate::support::grpc::Code;
use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::support::redis::proxy::Proxy;
use crate::support::unwritable::{full_device, pipe_without_reader};
use crate::support::wait;

async fn recovers_with_log(log: File) {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let plan = Plan::new(RULES).redis(&format!("redis://{}/", proxy.address())).log_to(log);
    let mut fixture = Fixture::start_with(plan).await;
    let before = lost_lines(&fixture.service);
    proxy.refuse();
    proxy.cut();
    fixture.first_failure().await;
    fixture.breaker_opens().await;
    wait::expect("the line of the outage", || lost_lines(&fixture.service) > before);
    proxy.restore();
    let decided = wait::until_async(wait::PATIENCE, async || fixture.ask().await.ok()).await;
    assert_eq!(decided, Some(Code::Ok), "Redis decides again");
    for _ in 0..10 {
        assert_eq!(fixture.ask().await, Ok(Code::Ok), "and goes on");
    }
    wait::expect("no breaker is open", || fixture.metric("ratelimitd_redis_breakers_open") == 0);
    fixture.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_log_on_a_full_device() {
    recovers_with_log(full_device()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_log_whose_reader_is_gone() {
    recovers_with_log(pipe_without_reader()).await;
}
