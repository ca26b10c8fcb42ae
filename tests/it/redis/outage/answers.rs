//! Redis answers with errors or unexpected replies. A real server gives them, except for replies that none sends.

use super::replies::ReplyProxy;
use super::{Fixture, RULES, Symptoms};
use crate::support::grpc::Code;
use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::support::{ports, wait};

const PATIENT: &str = "1s";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_became_a_replica_readonly() {
    let redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]).expect("REPLICAOF");
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "refused", logged: "READONLY" }).await;
    redis.run::<()>(&["REPLICAOF", "NO", "ONE"]).expect("REPLICAOF");
    fixture.service_recovers().await;
    fixture.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_left_oom() {
    let redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]).expect("CONFIG SET");
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "refused", logged: "OOM" }).await;
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]).expect("CONFIG SET");
    fixture.service_recovers().await;
    fixture.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_runs_a_long_script_busy() {
    let redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["CONFIG", "SET", "busy-reply-threshold", "50"]).expect("CONFIG SET");
    std::thread::scope(|scope| {
        let script = scope.spawn(|| redis.run::<()>(&["EVAL", "while true do end", "0"]));
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            runtime.block_on(async {
                fixture.first_failure().await;
                fixture.policies_are_in_force(&Symptoms { kind: "refused", logged: "BUSY" }).await;
                redis.run::<()>(&["SCRIPT", "KILL"]).expect("SCRIPT KILL");
                fixture.service_recovers().await;
            });
        });
        script.join().expect("a thread").expect_err("the script was killed");
    });
    fixture.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_its_data_loading() {
    const KEYS: &str = "for key = 1, 4000 do redis.call('SET', 'filler:' .. key, key) end";
    let mut redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["EVAL", KEYS, "0"]).expect("EVAL");
    redis.run::<()>(&["SAVE"]).expect("SAVE");
    // Half a millisecond for each key.
    redis.restart_with(&["--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"]);
    let loading = redis.run::<()>(&["GET", "x"]).expect_err("it loads for seconds");
    assert_eq!(loading.code(), Some("LOADING"), "{loading}");
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "refused", logged: "LOADING" }).await;
    wait::expect("the end of loading", || redis.run::<Option<String>>(&["GET", "x"]).is_ok());
    fixture.service_recovers().await;
    fixture.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_the_script_noscript() {
    let redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), PATIENT).await;
    for _ in 0..5 {
        redis.run::<()>(&["SCRIPT", "FLUSH"]).expect("SCRIPT FLUSH");
        assert_eq!(fixture.ask().await, Ok(Code::Ok), "the call is sent again in full: it had not run");
    }
    assert_eq!(fixture.times_logged("Redis is unavailable"), 0);
    fixture.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_a_password_noauth() {
    let redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["CONFIG", "SET", "requirepass", "hunter2"]).expect("CONFIG SET");
    // An open connection stays authenticated.
    assert_eq!(fixture.ask().await, Ok(Code::Ok));
    redis.run_with_password::<()>("hunter2", &["CLIENT", "KILL", "TYPE", "normal"]).expect("CLIENT KILL");
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "forbidden", logged: "NOAUTH" }).await;
    assert!(!fixture.service.log().contains("hunter2"));
    redis.run_with_password::<()>("hunter2", &["CONFIG", "SET", "requirepass", ""]).expect("CONFIG SET");
    fixture.service_recovers().await;
    fixture.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_a_permission_away_noperm() {
    let redis = Redis::start();
    let mut fixture = Fixture::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]).expect("ACL SETUSER");
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "forbidden", logged: "NOPERM" }).await;
    redis.run::<()>(&["ACL", "SETUSER", "default", "+@all"]).expect("ACL SETUSER");
    fixture.service_recovers().await;
    fixture.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_only_the_permission_to_change_counters_away() {
    let redis = Redis::start();
    // A hit on a fixed window does not change when its counter expires, so the script uses SETRANGE.
    let rules = RULES.replace("gcra", "fixed_window");
    let plan = Plan::new(&rules).redis(&redis.url()).set("store.redis.timeout", PATIENT);
    let mut fixture = Fixture::start_with(plan).await;
    redis.run::<()>(&["ACL", "SETUSER", "default", "-setrange"]).expect("ACL SETUSER");
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "forbidden", logged: "the store denies access" }).await;
    let closed = "ratelimitd_redis_breaker_transitions_total{state=\"closed\"}";
    assert_eq!(fixture.metric(closed), 0, "no probe succeeds");
    redis.run::<()>(&["ACL", "SETUSER", "default", "+@all"]).expect("ACL SETUSER");
    fixture.service_recovers().await;
    fixture.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_cover_its_slots_clusterdown() {
    // An explicit cluster bus port: the default, the port plus 10,000, may be the local end of a connection.
    let bus = ports::free().to_string();
    let redis = Redis::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    let decides = || redis.run::<()>(&["SET", "x", "1"]).is_ok();
    redis.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).expect("CLUSTER ADDSLOTSRANGE");
    wait::expect("the cluster decides", decides);
    let mut fixture = Fixture::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["CLUSTER", "DELSLOTSRANGE", "0", "16383"]).expect("CLUSTER DELSLOTSRANGE");
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "refused", logged: "CLUSTERDOWN" }).await;
    redis.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).expect("CLUSTER ADDSLOTSRANGE");
    wait::expect("the cluster decides again", decides);
    fixture.service_recovers().await;
    fixture.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_the_wrong_shape() {
    let redis = Redis::start();
    let proxy = ReplyProxy::start(redis.address());
    let mut fixture = Fixture::start(&format!("redis://{}/", proxy.address()), PATIENT).await;
    for reply in ["*1\r\n:5\r\n", "+OK\r\n", "*0\r\n", "$2\r\nhi\r\n", "*2\r\n:1\r\n$1\r\nx\r\n", ":7\r\n"] {
        proxy.replace_replies(reply);
        fixture.first_failure().await;
    }
    fixture.policies_are_in_force(&Symptoms { kind: "malformed", logged: "malformed reply" }).await;
    proxy.pass_replies();
    fixture.service_recovers().await;
    // Redis charged the calls whose replies were replaced.
    fixture.nothing_was_charged_twice().await;
}
