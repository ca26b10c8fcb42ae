//! Units taken ahead, with real processes and a real Redis: never above the limit, and nothing stays lent.

mod faults;
mod layers;

use std::fs;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::ledger;
use crate::redis::cluster::block_on;

use crate::service::store_page::page;
use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::{http, wait};

const LIMIT: u64 = 1_000;
const RULES: &str = "
domain: d
descriptors:
  - { key: hot, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window, lease: auto } }
";

fn start(redis: &Redis) -> Ratelimitd {
    start_with(redis, RULES)
}

fn start_with(redis: &Redis, rules: &str) -> Ratelimitd {
    Plan::new(rules).redis(&redis.url()).set("store.redis.timeout", "5s").set("server.drain", "0s").start()
}

/// Sends this many calls over each of several connections, and counts the admitted ones.
async fn admitted(services: &[&Ratelimitd], connections: usize, calls: usize) -> u64 {
    let ports = services.iter().flat_map(|service| vec![service.grpc_port(); connections]);
    let each = ports.map(async |port| {
        let mut rls = Rls::connect(port).await;
        let mut admitted = 0;
        for _ in 0..calls {
            admitted += u64::from(rls.send_one("d", &[("hot", "x")]).await.0 == Code::Ok);
        }
        admitted
    });
    join_all(each).await.into_iter().sum()
}

fn held(service: &Ratelimitd) -> u64 {
    page(service)["redis"]["leases"]["held"].as_u64().expect("a number")
}

fn decisions(service: &Ratelimitd) -> u64 {
    page(service)["redis"]["leases"]["decisions"].as_u64().expect("a number")
}

fn expect_nothing_held(services: &[&Ratelimitd]) {
    wait::expect("unused units are returned", || services.iter().all(|service| held(service) == 0));
}

/// Sends calls until the limit is exhausted, and counts the admitted ones.
async fn admitted_until_exhausted(service: &Ratelimitd) -> u64 {
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut sum = 0;
    for _ in 0..2 * LIMIT {
        sum += u64::from(rls.send_one("d", &[("hot", "x")]).await.0 == Code::Ok);
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_admit_the_limit_and_never_more() {
    let redis = Redis::start();
    let (a, b) = (start(&redis), start(&redis));
    let first = admitted(&[&a, &b], 4, 100).await;
    assert_eq!(first, 800, "the limit is far away");
    expect_nothing_held(&[&a, &b]);
    assert_eq!(a.left("d", ("hot", "x")), LIMIT - first, "Redis counts what was admitted");
    let second = admitted(&[&a, &b], 4, 150).await;
    assert!(first + second <= LIMIT, "{first} and {second}");
    expect_nothing_held(&[&a, &b]);
    let mut all = first + second;
    // Denials are repeated for a second at most.
    let end = wait::until_async(wait::PATIENCE, async || {
        all += admitted(&[&a, &b], 1, 1).await;
        (all >= LIMIT).then_some(())
    });
    assert!(end.await.is_some(), "{all} of {LIMIT}");
    assert_eq!(all + admitted_until_exhausted(&a).await, LIMIT);
    assert!(decisions(&a) + decisions(&b) > 100, "{} and {}", decisions(&a), decisions(&b));
    let metrics = http::get(a.http_port(), "/metrics", &[]).expect("metrics").body;
    let units = |event: &str| {
        let start = format!("ratelimitd_lease_units_total{{event=\"{event}\",place=\"window\"}} ");
        let line = metrics.lines().find_map(|line| line.strip_prefix(&start)).expect("the counter");
        line.parse::<u64>().expect("a number")
    };
    assert_eq!(units("granted"), units("spent") + units("returned") + units("lapsed"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_says_what_is_held_of_each_limit() {
    const TWO_LIMITS: &str = "
domain: d
descriptors:
  - { key: hot, rate_limit: { unit: year, requests_per_unit: 1000000, algorithm: fixed_window, lease: auto } }
  - { key: route, rate_limit: { unit: year, requests_per_unit: 1000000, algorithm: fixed_window, lease: auto } }
  - { key: rare, rate_limit: { unit: year, requests_per_unit: 1000000, algorithm: fixed_window } }
";
    let redis = Redis::start();
    let service = start_with(&redis, TWO_LIMITS);
    let mut load = JoinSet::new();
    for entry in [("hot", "x"), ("hot", "y"), ("route", "z"), ("rare", "z")] {
        let mut rls = Rls::connect(service.grpc_port()).await;
        load.spawn(async move {
            loop {
                rls.send_one("d", &[entry]).await;
            }
        });
    }
    let keys_and_units = |rules: &Value, key: &str| {
        let is_it = |rule: &&Value| rule["path"] == key;
        let rule = rules.as_array()?.iter().find(is_it)?;
        let borrowed = rule["how"].as_str()?.strip_prefix("fixed_window, leased here: ")?.to_owned();
        let (keys, units) = borrowed.split_once(", ")?;
        Some((keys.to_owned(), units != "0 units held"))
    };
    wait::expect("both limits hold units", || {
        let page = http::get(service.admin_port(), "/console/state", &[]).expect("an answer").body;
        let rules = &serde_json::from_str::<Value>(&page).expect("JSON")["rules"]["list"];
        let held = |keys: &str| Some((keys.to_owned(), true));
        assert_eq!(keys_and_units(rules, "rare"), None, "{page}");
        keys_and_units(rules, "hot") == held("2 keys") && keys_and_units(rules, "route") == held("1 key")
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_returns_its_units() {
    let redis = Redis::start();
    let (mut a, b) = (start(&redis), start(&redis));
    let first = admitted(&[&a], 4, 100).await;
    a.terminate();
    let status = a.wait_exit();
    assert!(status.success(), "{status}");
    assert_eq!(b.left("d", ("hot", "x")), LIMIT - first);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_takes_at_most_what_it_held() {
    let redis = Redis::start();
    let (mut a, b) = (start(&redis), start(&redis));
    let first = admitted(&[&a, &b], 4, 60).await;
    a.kill();
    let all = first + admitted_until_exhausted(&b).await;
    assert!(all <= LIMIT, "{all}");
    // A process borrows at most a quarter of what is left.
    assert!(all >= LIMIT - LIMIT / 4, "{all}");
}

/// The units of a restarted Redis are dropped once the restart is noticed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_redis_decisions_go_on() {
    let mut redis = Redis::start();
    let a = start(&redis);
    wait::expect("the description of the server", || page(&a)["redis"]["servers"][0].is_object());
    admitted(&[&a], 4, 60).await;
    redis.stop();
    redis.restart();
    wait::expect("the restart is noticed", || page(&a)["redis"]["restarts"] == 1);
    expect_nothing_held(&[&a]);
    wait::expect("Redis answers", || page(&a)["redis"]["answers"] == true);
    assert!(admitted_until_exhausted(&a).await <= LIMIT);
}

/// Instances with and without leases decide by the same counters while one replaces the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_update_switches_leases_on() {
    let redis = Redis::start();
    let mut old = start_with(&redis, &RULES.replace("lease: auto", "lease: off"));
    let new = start(&redis);
    let first = admitted(&[&old, &new], 4, 50).await;
    old.terminate();
    assert!(old.wait_exit().success());
    let mut second = start(&redis);
    let all = first + admitted(&[&new, &second], 4, 50).await;
    assert_eq!(all, 800, "the limit is far away");
    second.terminate();
    assert!(second.wait_exit().success());
    assert!(decisions(&new) > 50, "{}", decisions(&new));
    expect_nothing_held(&[&new]);
    assert_eq!(all + admitted_until_exhausted(&new).await, LIMIT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_lowers_the_limit_of_a_hot_key() {
    let redis = Redis::start();
    let a = start(&redis);
    let first = admitted(&[&a], 4, 50).await;
    fs::write(a.rules().join("rules.yaml"), RULES.replace("1000", "300")).expect("a rule file");
    wait::expect("the lower limit", || a.left("d", ("hot", "x")) <= 100);
    assert!(first + admitted_until_exhausted(&a).await <= 300);
    expect_nothing_held(&[&a]);
    // A denial is repeated for a second at most.
    let mut all = first;
    wait::expect("the units that were lent", || a.left("d", ("hot", "x")) == 0 || held(&a) == 0);
    all += admitted_until_exhausted(&a).await;
    assert!(all <= 300, "{all}");
}

/// Every admitted unit is booked once, whether a lease or Redis decided; units taken ahead are not booked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ledger_books_what_leases_admit() {
    let (redis, directory) = (Redis::start(), tempfile::tempdir().expect("a directory"));
    let rules = RULES.replace("lease: auto", "lease: auto, ledger: true");
    let plan = ledger::service::plan(&rules, directory.path()).redis(&redis.url());
    let service = plan.set("store.redis.timeout", "5s").set("server.drain", "0s").start();
    let all = admitted(&[&service], 4, 100).await;
    let without_redis = decisions(&service);
    ledger::service::stop(service);
    let lines = ledger::lines(directory.path());
    let booked: u64 = lines.iter().filter(|line| line.at > 0).map(|line| line.sums().units).sum();
    assert_eq!((all, booked), (400, 400));
    assert!(without_redis > 50, "{without_redis}");
}

/// Requests over two slots: the global limit is decided from units taken ahead, so only the tenant's slot is asked, and
/// a denial by the tenant's limit undoes nothing.
#[test]
fn in_a_cluster_a_leased_limit_needs_no_undo() {
    const RULES: &str = "
domain: d
descriptors:
  - { key: all, rate_limit: { unit: year, requests_per_unit: 1000000, algorithm: gcra, burst: 1000000, lease: auto } }
  - { key: tenant, rate_limit: { unit: year, requests_per_unit: 700, algorithm: gcra, burst: 700 } }
";
    let cluster = Cluster::start();
    let plan = Plan::new(RULES).redis(&cluster.urls().join(",")).set("store.redis.topology", "cluster");
    let service = plan.set("store.redis.timeout", "5s").set("store.redis.deny_cache.enabled", false).start();
    let script_calls = || -> u64 {
        let of_node = |node: &Redis| {
            let stats: String = node.run(&["INFO", "commandstats"]).expect("INFO");
            let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
            calls.map_or(0, |calls| calls.split(',').next().and_then(|n| n.parse().ok()).expect("a number"))
        };
        cluster.nodes().iter().map(of_node).sum()
    };
    block_on(async {
        let mut rls = Rls::connect(service.grpc_port()).await;
        let both = || request("d", vec![descriptor(&[("all", "x")]), descriptor(&[("tenant", "x")])]);
        let mut send = async |calls: u64| {
            let mut admitted = 0;
            for _ in 0..calls {
                let answer = rls.send(both()).await.expect("an answer");
                admitted += u64::from(answer.overall_code() == Code::Ok);
            }
            admitted
        };
        assert_eq!(send(400).await, 400);
        let before = script_calls();
        assert_eq!(send(300).await, 300);
        let admitting = script_calls() - before;
        assert_eq!(send(300).await, 0);
        let denying = script_calls() - before - admitting;
        println!("{admitting} script calls for 300 admitted requests, {denying} for 300 denied ones");
        assert!(admitting <= 360 && denying <= 360, "{admitting} and {denying}");
    });
}
