//! The DNS name of the server resolves to another address, or to none.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::{Fixture, RULES, Symptoms};
use crate::support::grpc::Code;
use crate::support::hosts::Hosts;
use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::support::{http, wait};

const NAME: &str = "counters.test";

const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Two servers on the same port of two addresses, and a service that knows a name which leads to the first.
async fn start() -> (Redis, Redis, Hosts, Fixture) {
    let old = Redis::start();
    let new = Redis::start_at(SocketAddr::new(ELSEWHERE, old.port()));
    let mut hosts = Hosts::new();
    hosts.set_address(NAME, old.address().ip());
    let plan = Plan::new(RULES).redis(&format!("redis://{NAME}:{}/", old.port()));
    let mut fixture = Fixture::connect(hosts.for_process(plan)).await;
    // The first lookups of the process run in parallel, for which nss_wrapper is not safe: one of them may find no
    // name.
    let first = wait::until_async(wait::PATIENCE, async || fixture.ask().await.ok()).await;
    assert_eq!(first, Some(Code::Ok));
    (old, new, hosts, fixture.decides_before_the_fault().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_servers_name_that_moves() {
    let (mut old, new, mut hosts, mut fixture) = start().await;
    old.stop();
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "unreachable", logged: "cannot reach the store" }).await;
    hosts.set_address(NAME, new.address().ip());
    (fixture.admitted, fixture.unanswered) = (0, 0);
    fixture.service_recovers().await;
    fixture.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_moves_away_from_a_replica() {
    let (old, new, mut hosts, mut fixture) = start().await;
    // As managed services do it: the old primary becomes a replica, and the name leads to the new one a moment later.
    old.run::<()>(&["REPLICAOF", "127.0.0.1", "1"]).expect("REPLICAOF");
    fixture.first_failure().await;
    fixture.policies_are_in_force(&Symptoms { kind: "refused", logged: "READONLY" }).await;
    hosts.set_address(NAME, new.address().ip());
    (fixture.admitted, fixture.unanswered) = (0, 0);
    fixture.service_recovers().await;
    fixture.nothing_was_charged_but_what_was_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_gone_leads_where_it_led() {
    let (old, _new, mut hosts, mut fixture) = start().await;
    hosts.clear();
    for _ in 0..5 {
        old.run::<()>(&["CLIENT", "KILL", "TYPE", "normal"]).expect("CLIENT KILL");
        // A call that was in flight when the connection broke may fail.
        let answer = wait::until_async(wait::PATIENCE, async || fixture.ask().await.ok()).await;
        assert_eq!(answer, Some(Code::Ok));
    }
    assert_eq!(fixture.times_logged("Redis is unavailable"), 0);
    fixture.nothing_was_charged_twice().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_without_an_address_yet() {
    let redis = Redis::start();
    let mut hosts = Hosts::new();
    hosts.clear();
    let plan = Plan::new(RULES).redis(&format!("redis://{NAME}:{}/", redis.port())).wait_for_livez();
    let service = hosts.for_process(plan).start();
    let status = || http::get(service.http_port(), "/readyz", &[]).expect("an answer").status;
    wait::expect("a word about the name", || service.log().contains(NAME));
    assert_eq!(status(), 503);
    hosts.set_address(NAME, redis.address().ip());
    wait::expect("readiness", || status() == 200);
}
