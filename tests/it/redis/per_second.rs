//! Counters of limits of one second on a Redis of their own: where counters are, requests over both servers, and one
//! server down.

use ::base::clock::monotonic;
use ::store::redis::{RedisOptions, RedisStore, ServerOptions, Topology};
use engine::algorithm::{FixedWindow, Gcra, Kernel};
use engine::{Charges, Cost, Pacing, Reset, Store, Verdict};
use envoy_types::pb::google::protobuf::UInt64Value;
use tonic::Code as Grpc;

use super::{add_charge, count_admitted, decide_one, kernels, one_charge, patient_options, remaining, store};
use crate::service::store_page::page;
use crate::support::grpc::{Code, RateLimitDescriptor, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::ratelimit::Environment;
use crate::support::redis::cluster::Cluster;
use crate::support::redis::{Redis, parsed};
use crate::support::{http, wait};

/// A bucket of one second that needs a quarter of an hour to fill: its counter stays for the whole test.
const SLOW: u64 = 1_000;

pub(super) fn slow_bucket() -> Kernel {
    Kernel::Gcra(Gcra::new(1, 1_000_000, SLOW, Pacing::Meter))
}

pub(super) fn two_servers(main: RedisOptions, per_second: &Redis) -> RedisStore {
    let servers = ServerOptions {
        topology: Topology::Standalone,
        urls: parsed([per_second.url()]),
        credentials: main.credentials.clone(),
    };
    store(&RedisOptions { per_second: Some(servers), ..main })
}

/// The keys of counters, without those of probes and of exceptions.
fn counters(redis: &Redis) -> Vec<String> {
    let mut keys: Vec<String> = redis.run(&["KEYS", "*"]).expect("keys");
    keys.retain(|key| !key.contains("probe") && !key.contains("{exceptions}"));
    keys.sort();
    keys
}

fn both(main: Kernel, main_cost: u32, per_second: Kernel, per_second_cost: u32) -> Charges {
    let mut charges = Charges::default();
    add_charge(&mut charges, main, "main", Cost::take(main_cost.into()));
    add_charge(&mut charges, per_second, "second", Cost::take(per_second_cost.into()));
    charges
}

#[tokio::test]
async fn the_period_decides_which_server_has_the_counter() {
    let (main, other) = (Redis::start(), Redis::start());
    let store = two_servers(patient_options(&main.url()), &other);
    store.probe().await.expect("both decide");
    for (name, kernel) in kernels(5) {
        decide_one(&store, kernel, name, Cost::take(1)).await.expect("a decision");
    }
    let minute = Kernel::Gcra(Gcra::new(1, 60_000_000, SLOW, Pacing::Meter));
    decide_one(&store, minute, "a minute", Cost::take(500)).await.expect("a decision");
    decide_one(&store, slow_bucket(), "a second", Cost::take(500)).await.expect("a decision");
    assert_eq!(counters(&other), ["it:a second"]);
    assert_eq!(counters(&main).len(), 8, "{:?}", counters(&main));
    let reset = one_charge(slow_bucket(), "a second", Cost::take(1));
    assert_eq!(store.reset(&reset).await, Ok(vec![true]));
    assert_eq!(counters(&other), [""; 0]);
    store.shutdown().await.expect("no task died");
}

#[tokio::test]
async fn a_request_over_both_servers_is_charged_on_both_or_on_none() {
    let (main, other) = (Redis::start(), Redis::start());
    let store = two_servers(patient_options(&main.url()), &other);
    let three_a_year = kernels(3)[0].1;
    let verdicts = async |charges: &Charges| {
        let outcomes = store.decide(charges).await.expect("both decide");
        outcomes.by_charge.iter().map(|outcome| outcome.verdict).collect::<Vec<_>>()
    };
    // Six units never fit into five of a window of one second.
    let five_a_second = Kernel::FixedWindow(FixedWindow::new(5, 1_000_000));
    let denied = both(three_a_year, 1, five_a_second, 6);
    assert_eq!(verdicts(&denied).await, [Verdict::Fits, Verdict::Over]);
    assert_eq!(remaining(&store, three_a_year, "main").await, 3, "undone on the main server");

    let started = monotonic();
    assert_eq!(verdicts(&both(three_a_year, 3, slow_bucket(), 500)).await, [Verdict::Fits; 2]);
    assert_eq!(verdicts(&both(three_a_year, 1, slow_bucket(), 300)).await, [Verdict::Over, Verdict::Fits]);
    let left = remaining(&store, slow_bucket(), "second").await;
    // The bucket gets a unit in a second. Without the undo, 200 would be left.
    let most = 501 + started.elapsed().as_secs();
    assert!((499..=most).contains(&left), "{left} units are left, not 500 to {most}");
    assert_eq!(remaining(&store, three_a_year, "main").await, 0);
}

#[tokio::test]
async fn concurrent_requests_over_both_servers_never_exceed_the_narrow_limit() {
    let (main, other) = (Redis::start(), Redis::start());
    let store = two_servers(patient_options(&main.url()), &other);
    let (sixty, started) = (kernels(60)[0].1, monotonic());
    assert_eq!(count_admitted(&store, &both(sixty, 1, slow_bucket(), 1), 500).await, 60);
    let left = remaining(&store, slow_bucket(), "second").await;
    let most = SLOW - 60 + 1 + started.elapsed().as_secs();
    assert!((SLOW - 62..=most).contains(&left), "{left} units are left, not {} to {most}", SLOW - 60);
}

/// Units are given back while a request that is denied later holds another unit of the counter.
#[tokio::test]
async fn a_refund_during_a_reservation_loses_no_units() {
    let (main, other) = (Redis::start(), Redis::start());
    let store = two_servers(patient_options(&main.url()), &other);
    decide_one(&store, slow_bucket(), "second", Cost::take(SLOW)).await.expect("a decision");
    for (name, kernel) in kernels(5) {
        let mut denied = Charges::default();
        add_charge(&mut denied, kernel, name, Cost::take(1));
        add_charge(&mut denied, slow_bucket(), "second", Cost::take(SLOW));
        let mut left = Vec::new();
        for _ in 0..4 {
            let taken = decide_one(&store, kernel, name, Cost::take(1)).await.expect("a decision");
            assert_eq!(taken.verdict, Verdict::Fits, "{name}: nothing is held, but {left:?} were left");
            other.signal("STOP");
            let (outcomes, ()) = tokio::join!(store.decide(&denied), async {
                let reserved = wait::until_async(wait::PATIENCE, async || {
                    let left_now = remaining(&store, kernel, name).await;
                    (left_now < taken.report.remaining).then_some(())
                });
                reserved.await.expect("the other request holds a unit, too");
                decide_one(&store, kernel, name, Cost::refund(1)).await.expect("a decision");
                other.signal("CONT");
            });
            let verdicts = outcomes.expect("both decide").by_charge[1].verdict;
            assert_eq!(verdicts, Verdict::Over);
            left.push(remaining(&store, kernel, name).await);
        }
        assert_eq!(left, [5; 4], "{name}");
    }
}

#[tokio::test]
async fn the_main_servers_may_be_a_cluster() {
    let (cluster, other) = (Cluster::start(), Redis::start());
    let main = RedisOptions {
        topology: Topology::Cluster,
        urls: parsed(cluster.urls()),
        ..patient_options("redis://unused")
    };
    let store = two_servers(main, &other);
    let three_a_year = kernels(3)[0].1;
    let mut charges = Charges::default();
    for n in 0..4 {
        add_charge(&mut charges, three_a_year, &format!("{{tenant={n}}}"), Cost::take(1));
    }
    add_charge(&mut charges, slow_bucket(), "second", Cost::take(1));
    assert_eq!(count_admitted(&store, &charges, 4).await, 3);
    assert_eq!(counters(&other), ["it:second"]);
    let names: Vec<String> = store.nodes().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.iter().filter(|name| *name == "per_second").count(), 1, "{names:?}");
    assert_eq!(names.len(), 4);
}

const RULES: &str = "
domain: d
descriptors:
  - { key: year, rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra } }
  - { key: second, rate_limit: { unit: second, requests_per_unit: 1, burst: 1000, algorithm: gcra } }
  - key: open
    rate_limit: { unit: second, requests_per_unit: 1, burst: 1000, algorithm: gcra, on_store_failure: allow }
";

fn plan(main: &Redis, other: &Redis) -> Plan {
    let plan = Plan::new(RULES).redis(&main.url()).set("server.workers", 1);
    plan.set("store.redis.per_second.url", other.url()).set("store.redis.timeout", "1s")
}

fn metric(service: &Ratelimitd, name: &str) -> String {
    let text = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
}

fn with_hits(descriptor: &RateLimitDescriptor, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value: hits }), ..descriptor.clone() }
}

async fn ask(rls: &mut Rls, descriptors: &[RateLimitDescriptor]) -> Result<Code, Grpc> {
    let answer = rls.send(request("d", descriptors.to_vec())).await;
    answer.map(|answer| answer.overall_code()).map_err(|status| status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limits_of_one_server_stand_while_the_other_is_down() {
    let (main, mut other) = (Redis::start(), Redis::start());
    let service = plan(&main, &other).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let [year, second, open] = ["year", "second", "open"].map(|key| descriptor(&[(key, "x")]));
    assert_eq!(ask(&mut rls, &[year.clone(), second.clone()]).await, Ok(Code::Ok));
    assert_eq!(page(&service)["redis"]["nodes"]["per_second"]["closed"], 2, "one for gRPC, one for HTTP");
    other.stop();

    assert_eq!(ask(&mut rls, std::slice::from_ref(&second)).await, Err(Grpc::Unavailable));
    assert_eq!(ask(&mut rls, &[year.clone(), second.clone()]).await, Err(Grpc::Unavailable));
    let opened = wait::until_async(wait::PATIENCE, async || {
        let _ = ask(&mut rls, std::slice::from_ref(&second)).await;
        (metric(&service, "ratelimitd_redis_per_second_breakers_open") != "0").then_some(())
    });
    assert!(opened.await.is_some(), "the breaker of the server that is down opens");
    assert_ne!(metric(&service, "ratelimitd_redis_breakers_open"), "0", "the total");
    assert_eq!(page(&service)["redis"]["nodes"]["server"]["closed"], 2, "the other server is well");
    // One unit is used: the request that failed is undone.
    let undone = wait::until_async(wait::PATIENCE, async || {
        let peek = request("d", vec![with_hits(&year, 0)]);
        let left = rls.send(peek).await.expect("the other server decides").statuses[0].limit_remaining;
        (left == 4).then_some(())
    });
    assert!(undone.await.is_some(), "nothing of a failed request stays charged");
    for expected in [Code::Ok, Code::Ok, Code::Ok, Code::Ok, Code::OverLimit] {
        assert_eq!(ask(&mut rls, &[year.clone(), open.clone()]).await, Ok(expected));
    }
    assert_eq!(ask(&mut rls, &[year, second.clone()]).await, Ok(Code::OverLimit), "a known denial stands");

    other.restart();
    let back = wait::until_async(wait::PATIENCE, async || {
        (ask(&mut rls, std::slice::from_ref(&second)).await == Ok(Code::Ok)).then_some(())
    });
    assert!(back.await.is_some(), "its limits are decided again");
}

#[test]
fn the_service_is_ready_when_both_servers_have_decided() {
    let (mut main, mut other) = (Redis::start(), Redis::start());
    main.stop();
    other.stop();
    let service = plan(&main, &other).wait_for_livez().start();
    let ready = || http::get(service.http_port(), "/readyz", &[]).expect("an answer").body;
    wait::expect("both are missing", || {
        ready().contains("not decided yet (main and per_second: Connection refused)")
    });
    main.restart();
    wait::expect("one is missing", || ready().contains("not decided yet (per_second: Connection refused)"));
    other.restart();
    wait::expect("the service is ready", || ready() == "ready\n");
    let both = || {
        let shown = page(&service);
        (shown["redis"]["servers"].as_array()?.len() == 2).then_some(shown)
    };
    let shown = wait::until(wait::PATIENCE, both).expect("both servers are shown soon after they answer");
    assert_eq!(shown["redis"]["per_second"]["topology"], "standalone");
    let servers = shown["redis"]["servers"].as_array().expect("a list");
    let addresses: Vec<_> = servers.iter().map(|server| server["address"].clone()).collect();
    assert_eq!(addresses, ["", "per_second"], "{shown}");
}

/// Each look makes the calls that show the outage.
async fn wait_for_readiness(service: &Ratelimitd, rls: &mut Rls, expected: &str) {
    let [year, second] = ["year", "second"].map(|key| descriptor(&[(key, "x")]));
    let seen = wait::until_async(wait::PATIENCE, async || {
        for asked in [&year, &second] {
            let _ = ask(rls, std::slice::from_ref(asked)).await;
        }
        let body = http::get(service.http_port(), "/readyz", &[]).expect("an answer").body;
        (body == expected).then_some(())
    });
    assert!(seen.await.is_some(), "not {expected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_outage_names_the_servers_that_do_not_answer() {
    let (mut main, mut other) = (Redis::start(), Redis::start());
    let service = plan(&main, &other).set("store.redis.ready_in_outage", false).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    other.stop();
    wait_for_readiness(
        &service,
        &mut rls,
        "not ready: the store does not answer (per_second: Connection refused)\n",
    )
    .await;
    main.stop();
    wait_for_readiness(
        &service,
        &mut rls,
        "not ready: the store does not answer (main and per_second: Connection refused)\n",
    )
    .await;
    other.restart();
    wait_for_readiness(
        &service,
        &mut rls,
        "not ready: the store does not answer (main: Connection refused)\n",
    )
    .await;
    main.restart();
    wait_for_readiness(&service, &mut rls, "ready\n").await;
}

#[tokio::test]
async fn the_variables_of_envoyproxy_ratelimit_name_the_second_server() {
    let (main, other) = (Redis::start(), Redis::start());
    let environment = Environment::new().redis(main.port()).rules("a.yaml", RULES);
    let environment = environment.set("REDIS_PERSECOND", "true").set("REDIS_PERSECOND_SOCKET_TYPE", "tcp");
    let environment = environment.set("REDIS_PERSECOND_URL", &format!("127.0.0.1:{}", other.port()));
    let service = environment.start();
    service.wait_healthy();
    let mut rls = Rls::connect(service.grpc_port).await;
    // A unit comes back in a second, so the counter stays for a quarter of an hour.
    let descriptors =
        [("year", 1), ("second", 900)].map(|(key, hits)| with_hits(&descriptor(&[(key, "x")]), hits));
    let answer = rls.send(request("d", descriptors.to_vec())).await.expect("an answer");
    assert_eq!(answer.overall_code(), Code::Ok);
    for (redis, key) in [(&main, "{d|year=x}"), (&other, "{d|second=x}")] {
        let keys = counters(redis);
        assert!(keys.len() == 1 && keys[0].contains(key), "{keys:?}");
    }
}
