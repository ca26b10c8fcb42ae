//! Redis answers, but not what it should: each case by the real server, except for answers that it never gives.

use super::replies::Liar;
use super::{Lab, Signs};
use crate::support::grpc::Code;
use crate::support::redis::Redis;
use crate::support::{ports, wait};

const PATIENT: &str = "1s";

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_became_a_replica_readonly() {
    let redis = Redis::start();
    let mut lab = Lab::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]).expect("REPLICAOF");
    lab.fault_is_felt().await;
    lab.policies_are_in_force(&Signs { kind: "refused", logged: "READONLY" }).await;
    redis.run::<()>(&["REPLICAOF", "NO", "ONE"]).expect("REPLICAOF");
    lab.it_ends().await;
    lab.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_left_oom() {
    let redis = Redis::start();
    let mut lab = Lab::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]).expect("CONFIG SET");
    lab.fault_is_felt().await;
    lab.policies_are_in_force(&Signs { kind: "refused", logged: "OOM" }).await;
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]).expect("CONFIG SET");
    lab.it_ends().await;
    lab.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_runs_somebody_elses_script_busy() {
    let redis = Redis::start();
    let mut lab = Lab::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["CONFIG", "SET", "busy-reply-threshold", "50"]).expect("CONFIG SET");
    std::thread::scope(|scope| {
        let script = scope.spawn(|| redis.run::<()>(&["EVAL", "while true do end", "0"]));
        let runtime = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            runtime.block_on(async {
                lab.fault_is_felt().await;
                lab.policies_are_in_force(&Signs { kind: "refused", logged: "BUSY" }).await;
                redis.run::<()>(&["SCRIPT", "KILL"]).expect("SCRIPT KILL");
                lab.it_ends().await;
            });
        });
        script.join().expect("a thread").expect_err("the script was killed");
    });
    lab.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_loads_its_data_loading() {
    const KEYS: &str = "for key = 1, 4000 do redis.call('SET', 'filler:' .. key, key) end";
    let mut redis = Redis::start();
    let mut lab = Lab::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["EVAL", KEYS, "0"]).expect("EVAL");
    redis.run::<()>(&["SAVE"]).expect("SAVE");
    // Half a millisecond for each key.
    redis.restart_with(&["--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"]);
    let loading = redis.run::<()>(&["GET", "x"]).expect_err("it loads for seconds");
    assert_eq!(loading.code(), Some("LOADING"), "{loading}");
    lab.fault_is_felt().await;
    lab.policies_are_in_force(&Signs { kind: "refused", logged: "LOADING" }).await;
    wait::expect("the end of loading", || redis.run::<Option<String>>(&["GET", "x"]).is_ok());
    lab.it_ends().await;
    lab.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_the_script_noscript() {
    let redis = Redis::start();
    let mut lab = Lab::start(&redis.url(), PATIENT).await;
    for _ in 0..5 {
        redis.run::<()>(&["SCRIPT", "FLUSH"]).expect("SCRIPT FLUSH");
        assert_eq!(lab.ask().await, Ok(Code::Ok), "the call is sent again in full: it had not run");
    }
    assert_eq!(lab.times_logged("Redis does not answer"), 0);
    lab.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_for_a_password_noauth() {
    let redis = Redis::start();
    let mut lab = Lab::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["CONFIG", "SET", "requirepass", "hunter2"]).expect("CONFIG SET");
    // Whoever is in stays in.
    assert_eq!(lab.ask().await, Ok(Code::Ok));
    redis.run_with_password::<()>("hunter2", &["CLIENT", "KILL", "TYPE", "normal"]).expect("CLIENT KILL");
    lab.fault_is_felt().await;
    lab.policies_are_in_force(&Signs { kind: "forbidden", logged: "NOAUTH" }).await;
    assert!(!lab.service.log().contains("hunter2"));
    redis.run_with_password::<()>("hunter2", &["CONFIG", "SET", "requirepass", ""]).expect("CONFIG SET");
    lab.it_ends().await;
    lab.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_a_permission_away_noperm() {
    let redis = Redis::start();
    let mut lab = Lab::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]).expect("ACL SETUSER");
    lab.fault_is_felt().await;
    lab.policies_are_in_force(&Signs { kind: "forbidden", logged: "NOPERM" }).await;
    redis.run::<()>(&["ACL", "SETUSER", "default", "+@all"]).expect("ACL SETUSER");
    lab.it_ends().await;
    lab.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_cover_its_slots_clusterdown() {
    // A port that nobody has: the usual one, ten thousand further up, may be somebody's end of a connection.
    let bus = ports::free().to_string();
    let redis = Redis::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    let decides = || redis.run::<()>(&["SET", "x", "1"]).is_ok();
    redis.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).expect("CLUSTER ADDSLOTSRANGE");
    wait::expect("the cluster decides", decides);
    let mut lab = Lab::start(&redis.url(), PATIENT).await;
    redis.run::<()>(&["CLUSTER", "DELSLOTSRANGE", "0", "16383"]).expect("CLUSTER DELSLOTSRANGE");
    lab.fault_is_felt().await;
    lab.policies_are_in_force(&Signs { kind: "refused", logged: "CLUSTERDOWN" }).await;
    redis.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).expect("CLUSTER ADDSLOTSRANGE");
    wait::expect("the cluster decides again", decides);
    lab.it_ends().await;
    lab.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replies_of_the_wrong_shape() {
    let redis = Redis::start();
    let liar = Liar::start(redis.address());
    let mut lab = Lab::start(&format!("redis://{}/", liar.address()), PATIENT).await;
    for reply in ["*1\r\n:5\r\n", "+OK\r\n", "*0\r\n", "$2\r\nhi\r\n", "*2\r\n:1\r\n$1\r\nx\r\n", ":7\r\n"] {
        liar.lie(reply);
        lab.fault_is_felt().await;
    }
    lab.policies_are_in_force(&Signs { kind: "malformed", logged: "wrong shape" }).await;
    liar.stop_lying();
    lab.it_ends().await;
    // What the liar said nothing true about was charged all the same.
    lab.nothing_was_charged_twice().await;
}
