//! A Redis user that may not use the list commands, which only sliding logs need.

use std::sync::Arc;

use ::store::breaker::BreakerState;
use ::store::observer::NoopObserver;
use ::store::redis::RedisStore;
use engine::{Cost, StoreError};
use futures_util::future::join_all;

use crate::redis::{decide_one, kernels, patient_options};
use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::support::{http, wait};

/// Requests at once. Every tenth is to a log.
const AT_ONCE: usize = 100;
const ROUNDS: usize = 20;

fn set_user(redis: &Redis, rules: &[&str]) {
    redis.run::<()>(&[&["ACL", "SETUSER", "limiter", "on", ">hunter2"], rules].concat()).expect("ACL");
}

fn url(redis: &Redis) -> String {
    format!("redis://limiter:hunter2@127.0.0.1:{}", redis.port())
}

fn without_lists() -> Redis {
    let redis = Redis::start();
    set_user(&redis, &["~*", "+@all", "-@list"]);
    redis
}

/// How many of the requests at once failed: to other limits, and to logs.
async fn failures(store: &RedisStore) -> (usize, usize) {
    let [_, _, _, log, gcra, ..] = kernels(10_000);
    let is_log = |n: usize| n.is_multiple_of(10);
    let asked = (0..AT_ONCE).map(|n| {
        let (name, kernel) = if is_log(n) { log } else { gcra };
        async move { decide_one(store, kernel, &format!("{name} {n}"), Cost::take(1)).await }
    });
    let answers = join_all(asked).await;
    let failed = |of_logs: bool| {
        answers.iter().enumerate().filter(|(n, answer)| is_log(*n) == of_logs && answer.is_err()).count()
    };
    (failed(false), failed(true))
}

#[tokio::test]
async fn without_the_list_commands_requests_to_logs_fail_alone() {
    let redis = without_lists();
    let store =
        RedisStore::new(&patient_options(&url(&redis)), Arc::new(NoopObserver)).expect("good options");
    let mut failed = Vec::new();
    for _ in 0..ROUNDS {
        failed.push(failures(&store).await);
    }
    // The first calls show that logs cannot be changed.
    assert_eq!(failed[1..], [(0, 10); ROUNDS - 1], "other requests, and requests to logs: {failed:?}");
    assert!(store.nodes().iter().all(|(_, state)| *state == BreakerState::Closed), "{:?}", store.nodes());
    let [_, _, _, (_, log), ..] = kernels(5);
    let refused = decide_one(&store, log, "log", Cost::take(1)).await;
    assert!(matches!(refused, Err(StoreError::Forbidden(_))), "{refused:?}");
    set_user(&redis, &["+@list"]);
    assert_eq!(failures(&store).await, (0, 0), "with the permission logs are decided");
    set_user(&redis, &["-@all"]);
    wait::until_async(wait::PATIENCE, async || {
        failures(&store).await;
        store.nodes().iter().all(|(_, state)| *state == BreakerState::Open).then_some(())
    })
    .await
    .expect("a user without any permission is a failure of the server");
}

fn rules(algorithm: &str) -> String {
    format!(
        "{{domain: d, descriptors: [{{key: k, rate_limit: {{unit: hour, requests_per_unit: 5, algorithm: {algorithm}}}}}]}}"
    )
}

#[test]
fn an_instance_with_a_log_is_ready_when_redis_permits_the_list_commands() {
    let redis = without_lists();
    Plan::new(&rules("gcra")).redis(&url(&redis)).start();
    let service = Plan::new(&rules("sliding_log")).redis(&url(&redis)).wait_for_livez().start();
    let ready = || http::get(service.http_port(), "/readyz", &[]).expect("an answer").body;
    wait::expect("the reason", || ready().contains("the store rejects this process"));
    service.log_with("permission");
    set_user(&redis, &["+@list"]);
    wait::expect("the service is ready", || ready() == "ready\n");
    let keys: Vec<String> = redis.run(&["KEYS", "*"]).expect("KEYS");
    let is_counter = |key: &&String| !key.contains("{exceptions}") && !key.contains("probe");
    assert_eq!(keys.iter().find(is_counter), None, "{keys:?}");
}
