//! Readiness: an outage leaves a process ready, a store that was never reached or that rejects it does not.

use std::time::Duration;

use tonic::Code as Grpc;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::{Fixture, RULES};
use crate::support::grpc::Code;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::redis::cluster::{Cluster, run};
use crate::support::redis::proxy::Proxy;
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

const NOT_REACHED: &str = "not ready: the store has not decided yet (Connection refused)\n";
const NOTICED: &str = "Redis is unavailable; failure policies apply";

fn unready_in_outage(url: &str) -> Plan {
    on_redis(url).set("store.redis.ready_in_outage", false)
}

fn readyz(fixture: &Fixture) -> http::Response {
    http::get(fixture.service.http_port(), "/readyz", &[]).expect("an answer")
}

/// One answer of twenty is late, for several seconds.
#[tokio::test(flavor = "multi_thread")]
async fn single_late_answers_are_no_outage() {
    const TIMEOUT: Duration = Duration::from_millis(200);
    const ROUNDS: usize = 40;
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let plan = unready_in_outage(&format!("redis://{}/", proxy.address()));
    let mut fixture = Fixture::start_with(plan.set("store.redis.timeout", "200ms")).await;
    let (mut late, mut unready) = (0, 0);
    for _ in 0..ROUNDS {
        for _ in 0..20 {
            fixture.ask().await.expect("in time");
        }
        proxy.delay(Duration::ZERO, TIMEOUT * 6 / 5);
        late += usize::from(fixture.ask().await == Err(Grpc::Unavailable));
        proxy.restore();
        unready += usize::from(readyz(&fixture).status == 503);
    }
    println!("{late} late answers, not ready at {unready} of {ROUNDS} looks");
    assert_eq!((late, unready), (ROUNDS, 0), "{}", fixture.service.log());
    assert_eq!(fixture.times_logged("Redis is unavailable"), 0);
    fixture.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_one_of_its_nodes_is_ready_and_without_all_of_them_it_is_not() {
    let mut cluster = Cluster::start();
    let plan = unready_in_outage(&cluster.urls().join(",")).set("store.redis.topology", "cluster");
    let mut fixture = Fixture::start_with(plan).await;
    let dead = cluster.primary_of("{d|error=x}");
    let address = cluster.nodes()[dead].address();
    cluster.stop(dead);
    fixture.first_failure().await;
    fixture.breaker_opens().await;
    let log = fixture.service.log_with(NOTICED);
    let line = log.lines().find(|line| line.contains(NOTICED)).expect("the line");
    assert!(line.contains(&format!("node=\"{address}\"")), "{line}");
    // Some seconds: a breaker is probed twenty times a second at most.
    let probed = "ratelimitd_redis_breaker_transitions_total{state=\"half_open\"}";
    let (mut looks, mut unready, before) = (0, 0, fixture.metric(probed));
    wait::expect("sixty probes", || {
        looks += 1;
        unready += usize::from(readyz(&fixture).status == 503);
        fixture.metric(probed) > before + 60
    });
    println!("not ready at {unready} of {looks} looks");
    assert_eq!(unready, 0, "the other nodes decide");
    assert_eq!(fixture.times_logged(NOTICED), 1);

    for node in (0..3).filter(|node| *node != dead) {
        cluster.stop(node);
    }
    wait::expect("no node decides", || {
        readyz(&fixture).body == "not ready: the store does not answer (Connection refused)\n"
    });
    wait::expect("a line for each node", || fixture.times_logged(NOTICED) == 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_a_reason_not_to_be_ready_if_the_settings_say_so() {
    let mut redis = Redis::start();
    let url = with_user(&redis, &["~*"]);
    let mut fixture = Fixture::start_with(unready_in_outage(&url)).await;
    assert_eq!(readiness(&fixture.service).await, Ok(()));
    redis.stop();
    let down = "not ready: the store does not answer (Connection refused)\n";
    wait::expect("the cause", || readyz(&fixture).body == down);
    fixture.service.log_with(NOTICED);
    fixture.first_failure().await;
    for _ in 0..20 {
        assert_eq!(fixture.ask().await, Err(Grpc::Unavailable));
    }
    redis.restart();
    set_user(&redis, &["~*"]);
    wait::expect("readiness", || readyz(&fixture).body == "ready\n");
    let log = fixture.service.log_with("Redis is available again");
    let line = log.lines().find(|line| line.contains("Redis is available again")).expect("the line");
    assert!(line.contains(&format!("calls={}", fixture.unanswered)) && line.contains("lasted="), "{line}");
    assert_eq!(fixture.ask().await, Ok(Code::Ok));
    assert!(!log.contains("hunter2"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_was_never_reached_is_not() {
    let mut redis = Redis::start();
    redis.stop();
    let service = Plan::new(RULES).redis(&redis.url()).wait_for_livez().start();
    // Before the first attempt has failed, no reason is known.
    let is_refused = async || (readiness(&service).await == Err(NOT_REACHED.to_owned())).then_some(());
    assert!(wait::until_async(wait::PATIENCE, is_refused).await.is_some());
    redis.restart();
    assert!(wait::until_async(wait::PATIENCE, async || readiness(&service).await.ok()).await.is_some());
}

/// What `/readyz` and the log say of a store that rejects the process.
const REJECTED: [&str; 2] =
    ["rejects this process", "Redis rejects the credentials, permissions or database; not ready"];

/// A misconfigured instance is not ready, with the reason, until the server accepts it, without a restart.
async fn assert_not_ready_until(plan: Plan, [reason, logged]: [&str; 2], correct: impl FnOnce()) {
    let service = plan.wait_for_livez().start();
    let rejected = wait::until_async(wait::PATIENCE, async || {
        readiness(&service).await.err().filter(|reasons| reasons.contains(reason))
    });
    assert!(rejected.await.is_some(), "{}", service.log());
    wait::expect("the reason is in the log", || service.log().contains(logged));
    assert!(!service.log().contains("hunter"), "{}", service.log());
    correct();
    let ready = wait::until_async(wait::PATIENCE, async || readiness(&service).await.ok());
    assert!(ready.await.is_some(), "{}", service.log());
}

fn on_redis(url: &str) -> Plan {
    Plan::new(RULES).redis(url)
}

/// The ACL user `limiter` with these rules. Returns the URL for it.
fn with_user(redis: &Redis, rules: &[&str]) -> String {
    set_user(redis, rules);
    format!("redis://limiter:hunter2@{}/", redis.address())
}

fn set_user(redis: &Redis, rules: &[&str]) {
    let user = ["ACL", "SETUSER", "limiter", "reset", "on", ">hunter2", "+@all"];
    redis.run::<()>(&[&user, rules].concat()).expect("ACL SETUSER");
}

const OUR_KEYS: &str = "~ratelimitd:*";

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_password_is_a_misconfiguration() {
    let redis = Redis::start();
    redis.run::<()>(&["CONFIG", "SET", "requirepass", "hunter2"]).expect("CONFIG SET");
    assert_not_ready_until(on_redis(&redis.url()), REJECTED, || {
        redis.run_with_password::<()>("hunter2", &["CONFIG", "SET", "requirepass", ""]).expect("CONFIG SET");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_a_misconfiguration() {
    let redis = Redis::start();
    redis.run::<()>(&["CONFIG", "SET", "requirepass", "hunter2"]).expect("CONFIG SET");
    let wrong = format!("redis://:hunter3@{}/", redis.address());
    assert_not_ready_until(on_redis(&wrong), REJECTED, || {
        let change = ["CONFIG", "SET", "requirepass", "hunter3"];
        redis.run_with_password::<()>("hunter2", &change).expect("CONFIG SET");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_a_misconfiguration() {
    let redis = Redis::start();
    redis.run::<()>(&["ACL", "SETUSER", "default", "-evalsha"]).expect("ACL SETUSER");
    assert_not_ready_until(on_redis(&redis.url()), REJECTED, || {
        redis.run::<()>(&["ACL", "SETUSER", "default", "+@all"]).expect("ACL SETUSER");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_the_keys_or_a_command_of_the_script_is_a_misconfiguration() {
    let redis = Redis::start();
    for missing in [&["~other:*"][..], &["%R~ratelimitd:*"], &[OUR_KEYS, "-psetex"], &[OUR_KEYS, "-setrange"]]
    {
        let url = with_user(&redis, missing);
        assert_not_ready_until(on_redis(&url), REJECTED, || set_user(&redis, &[OUR_KEYS])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_a_misconfiguration() {
    let primary = Redis::start();
    let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &primary.port().to_string()]);
    let reasons = ["the store is a replica", "Redis is a read-only replica; not ready"];
    assert_not_ready_until(on_redis(&replica.url()), reasons, || {
        replica.run::<()>(&["REPLICAOF", "NO", "ONE"]).expect("REPLICAOF");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_node_that_rejects_the_process_is_a_misconfiguration() {
    let cluster = Cluster::start();
    let plan = on_redis(&cluster.urls().join(",")).set("store.redis.topology", "cluster");
    let node = &cluster.nodes()[1];
    run::<()>(node, &["ACL", "SETUSER", "default", "-psetex"]);
    let correct = || run::<()>(node, &["ACL", "SETUSER", "default", "+psetex"]);
    assert_not_ready_until(plan, REJECTED, correct).await;
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
    assert!(ready.body.contains("the store has not decided yet"), "{}", ready.body);
    assert!(page("/metrics").body.contains("\nratelimitd_ready 0\n"));
    let health = page("/healthcheck");
    assert_eq!((health.status, health.body.as_str()), (500, ""));

    redis.restart();
    wait::expect("readiness once Redis answers", || page("/readyz").status == 200);
    assert!(page("/metrics").body.contains("\nratelimitd_ready 1\n"));
    redis.stop();
    assert_eq!(page("/readyz").status, 200, "later outages are answered by the rules' own policies");
}
