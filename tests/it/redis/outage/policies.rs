//! What callers see while Redis is down, for each failure policy, and the recovery without a restart.

use envoy_types::pb::google::protobuf::Struct;
use envoy_types::pb::google::protobuf::value::Kind;
use tonic::Code as Grpc;

use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::support::{http, wait};

const RULES: &str = "
domain: d
descriptors:
  - { key: allow, rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra, on_store_failure: allow } }
  - { key: deny, rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra, on_store_failure: deny } }
  - { key: local, rate_limit: { unit: year, requests_per_unit: 4, algorithm: gcra, on_store_failure: local } }
  - { key: error, rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra } }
  - { key: shut, rate_limit: { unit: year, requests_per_unit: 0 } }
  - { key: spare, rate_limit: { unit: year, requests_per_unit: 1, algorithm: gcra, on_store_failure: local } }
  - { key: dark, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra } }
";

/// `Ok`, `OverLimit`, or the gRPC error.
async fn ask(rls: &mut Rls, keys: &[&str]) -> Result<Code, Grpc> {
    let descriptors = keys.iter().map(|key| descriptor(&[(key, "x")])).collect();
    let answer = rls.send(request("d", descriptors)).await;
    answer.map(|answer| answer.overall_code()).map_err(|error| error.code())
}

async fn every_policy_is_kept(rls: &mut Rls) {
    let rows: [(&[&str], Result<Code, Grpc>); 12] = [
        (&["allow"], Ok(Code::Ok)),
        (&["deny"], Ok(Code::OverLimit)),
        (&["error"], Err(Grpc::Unavailable)),
        (&["allow", "deny"], Ok(Code::OverLimit)), // each limit by its own policy
        (&["allow", "error"], Err(Grpc::Unavailable)),
        (&["error", "deny"], Ok(Code::OverLimit)), // a denial is certain, whatever the store would say
        (&["error", "shut"], Ok(Code::OverLimit)),
        (&["dark"], Ok(Code::Ok)), // a rule that only counts fails no call
        (&["unlimited"], Ok(Code::Ok)),
        (&["allow", "local"], Ok(Code::Ok)),
        (&["shut"], Ok(Code::OverLimit)), // what admits nothing needs no store to say so
        (&["spare", "deny"], Ok(Code::OverLimit)), // and does not charge the one that would fit
    ];
    for (keys, expected) in rows {
        assert_eq!(ask(rls, keys).await, expected, "{keys:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_starts_without_redis_and_decides_once_it_is_there() {
    let mut redis = Redis::start();
    redis.stop();
    let service = Plan::new(RULES).redis(&redis.url()).wait_for_livez().start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let ready = || http::get(service.http_port(), "/readyz", &[]).expect("an answer").status;

    assert_eq!(ready(), 503);
    every_policy_is_kept(&mut rls).await;
    assert_eq!(ask(&mut rls, &["spare"]).await, Ok(Code::Ok), "not charged when another limit denied");
    for _ in 0..3 {
        assert_eq!(ask(&mut rls, &["local"]).await, Ok(Code::Ok));
    }
    assert_eq!(ask(&mut rls, &["local"]).await, Ok(Code::OverLimit), "4 from this process's memory");

    redis.restart();
    let decided = wait::until_async(wait::PATIENCE, async || ask(&mut rls, &["error"]).await.ok()).await;
    assert_eq!(decided, Some(Code::Ok), "Redis decides after its return");
    wait::expect("ready once Redis was reached", || ready() == 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_ends_when_redis_comes_back() {
    let mut redis = Redis::start();
    let service = Plan::new(RULES).redis(&redis.url()).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(ask(&mut rls, &["error", "allow"]).await, Ok(Code::Ok));
    for round in 0..3 {
        redis.stop();
        every_policy_is_kept(&mut rls).await;
        redis.restart();
        let decided = wait::until_async(wait::PATIENCE, async || ask(&mut rls, &["error"]).await.ok()).await;
        assert_eq!(decided, Some(Code::Ok), "round {round}");
    }
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let counted = |line: &str| metrics.lines().any(|seen| seen.starts_with(line));
    assert!(
        counted("ratelimitd_decisions_total{domain=\"d\",outcome=\"error\",rule=\"d.error\"}"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_closed_while_idle_costs_no_decision() {
    let redis = Redis::start();
    let service = Plan::new(RULES).redis(&redis.url()).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(ask(&mut rls, &["error"]).await, Ok(Code::Ok));
    for _ in 0..4 {
        redis.run::<()>(&["CLIENT", "KILL", "TYPE", "normal"]).expect("CLIENT KILL");
        assert_eq!(ask(&mut rls, &["error"]).await, Ok(Code::Ok));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_became_a_replica_is_left_for_another_connection() {
    let redis = Redis::start();
    let service = Plan::new(RULES).redis(&redis.url()).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    assert_eq!(ask(&mut rls, &["error"]).await, Ok(Code::Ok));
    let clients = || {
        let list: String = redis.run(&["CLIENT", "LIST", "TYPE", "normal"]).expect("CLIENT LIST");
        list.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect::<Vec<_>>()
    };
    let before = clients();
    let _: String = redis.run(&["REPLICAOF", "127.0.0.1", "1"]).expect("REPLICAOF");
    assert_eq!(ask(&mut rls, &["error"]).await, Err(Grpc::Unavailable));
    assert!(before.iter().any(|client| !clients().contains(client)), "a connection to a replica is given up");
    let _: String = redis.run(&["REPLICAOF", "NO", "ONE"]).expect("REPLICAOF");
    let decided = wait::until_async(wait::PATIENCE, async || ask(&mut rls, &["error"]).await.ok()).await;
    assert_eq!(decided, Some(Code::Ok));
}

fn text<'s>(of: &'s Struct, name: &str) -> Option<&'s str> {
    match of.fields.get(name)?.kind.as_ref()? {
        Kind::StringValue(text) => Some(text),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_says_which_limits_answered_without_their_store() {
    let mut redis = Redis::start();
    let plan = Plan::new(RULES).redis(&redis.url()).set("response.dynamic_metadata", true);
    let service = plan.start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let asked = || request("d", vec![descriptor(&[("allow", "x")]), descriptor(&[("deny", "x")])]);
    let told = rls.send(asked()).await.expect("an answer").dynamic_metadata.expect("metadata");
    assert_eq!(told.fields.get("on_store_failure"), None, "Redis decided");
    redis.stop();
    let answer = rls.send(asked()).await.expect("an answer");
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let told = answer.dynamic_metadata.expect("metadata");
    let Some(Kind::StructValue(by_policy)) =
        told.fields.get("on_store_failure").and_then(|value| value.kind.as_ref())
    else {
        panic!("{told:?}");
    };
    assert_eq!((text(by_policy, "d.allow"), text(by_policy, "d.deny")), (Some("allow"), Some("deny")));
}

#[tokio::test(flavor = "multi_thread")]
async fn local_limits_count_to_their_share() {
    let mut redis = Redis::start();
    let plan = Plan::new(RULES).redis(&redis.url()).set("failure.local_share", 3);
    let service = plan.start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    redis.stop();
    let mut admitted = 0;
    for _ in 0..6 {
        admitted += u32::from(ask(&mut rls, &["local"]).await == Ok(Code::Ok));
    }
    assert_eq!(admitted, 2, "a third of 4, rounded up");
}
