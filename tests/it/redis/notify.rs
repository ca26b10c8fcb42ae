//! Notices with Redis: the known answers, and that several processes report each share once.

use std::collections::HashMap;
use std::sync::Arc;

use ::store::observer::NoopObserver;
use ::store::redis::{RedisOptions, RedisStore, Topology};
use fastrand::Rng;
use ratelimitd::ledger::Line;
use reqwest::Client;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::settle::Timed;
use crate::ledger::lines;
use crate::ledger::service::{metric, stop};
use crate::notify::check_known_answers;
use crate::notify::receiver::{Receiver, assert_signed, secret_file};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::{Redis, parsed};
use crate::support::wait;

#[test]
fn redis_gives_the_known_answers() {
    let (redis, runtime) = (Redis::start(), Runtime::new().expect("a runtime"));
    let mut server = Timed::connect(&runtime, &redis.url());
    let options = RedisOptions { urls: parsed([redis.url()]), ..RedisOptions::default() };
    let store = runtime.block_on(async { RedisStore::new(&options, Arc::new(NoopObserver)) });
    // Time passes in the test only, so the marks in Redis are made to end.
    let age = |passed_us: u64| {
        let marks: Vec<String> = redis.run(&["KEYS", "*n:*"]).expect("keys");
        for mark in marks.iter().filter(|_| passed_us > 0) {
            let left_ms: u64 = redis.run(&["PTTL", mark]).expect("each mark has an end");
            let left_ms = left_ms.saturating_sub(passed_us / 1_000).to_string();
            redis.run::<()>(&["PEXPIRE", mark, &left_ms]).expect("an end");
        }
    };
    let decide = |charges: &_, now_us| server.decide(charges, now_us);
    let store = store.expect("valid options");
    // A script of the timed server cannot run inside the runtime that waits for it.
    let waiting = Runtime::new().expect("a runtime");
    check_known_answers(&waiting, Some(&store), decide, age);
}

const RULES: &str = "
domain: d
descriptors:
  - { key: customer, rate_limit: { unit: year, requests_per_unit: 20, algorithm: fixed_window, calendar: UTC, ledger: true, notify: [0.5, 0.8, 1] } }
";
const PROCESSES: u64 = 3;
const KEYS: usize = 20;

fn plan(redis: &str, receiver: &Receiver, folder: &TempDir) -> Plan {
    let plan = Plan::new(RULES).redis(redis).set("store.redis.key_prefix", "it:");
    plan.set("notify.url", receiver.url()).set("notify.secret_file", secret_file(folder.path()))
}

fn told(services: &[Ratelimitd], result: &str) -> u64 {
    let name = format!("ratelimitd_notifications_total{{result=\"{result}\"}}");
    services.iter().map(|service| metric(service, &name)).sum()
}

/// Requests of one to three units to random processes, and refunds of what was taken, until each key is used up. All
/// processes see each share, and some of them again and again.
async fn use_up_all_keys(services: &[Ratelimitd], random: &mut Rng) -> usize {
    let (client, mut left) = (Client::new(), [20_u64; KEYS]);
    let mut requests = 0;
    while left.iter().any(|units| *units > 0) || requests < 2_000 {
        let service = &services[random.usize(..services.len())];
        let key = random.usize(..KEYS);
        // Not of a key without units: another process may have it in its deny cache.
        let is_refund = (1..14).contains(&left[key]) && requests < 1_500 && random.bool();
        // A key without units is asked for one more, and denies it.
        let is_over = left[key] == 0 && !is_refund;
        let units = if is_refund || is_over { 1 } else { random.u64(1..=3).min(left[key]) };
        let entry = json!({"key": "customer", "value": key.to_string()});
        let descriptor = json!({"entries": [entry], "hitsAddend": units, "isNegativeHits": is_refund});
        let body = json!({"domain": "d", "descriptors": [descriptor]});
        let url = format!("http://127.0.0.1:{}/json", service.http_port());
        let answer = client.post(url).body(body.to_string()).send().await.expect("an answer");
        assert_eq!(answer.status(), if is_over { 429 } else { 200 });
        match (is_over, is_refund) {
            (true, _) => {}
            (_, true) => left[key] += units,
            _ => left[key] -= units,
        }
        requests += 1;
    }
    requests
}

fn assert_each_once(receiver: &Receiver) {
    let mut told = HashMap::<(String, String), usize>::new();
    for one in receiver.received() {
        let data = one.message()["data"].clone();
        let of = (data["entries"][0].to_string(), data["share"].to_string());
        *told.entry(of).or_default() += 1;
    }
    assert!(told.values().all(|times| *times == 1), "{told:?}");
    assert_eq!(told.len(), KEYS * 3);
}

/// 20 keys, 3 shares, three processes.
#[test]
fn three_processes_tell_each_share_of_each_key_once() {
    let (redis, receiver) = (Redis::start(), Receiver::start(&["200 OK"]));
    let folder = TempDir::new().expect("a folder");
    let usage = folder.path().join("usage");
    let start =
        |_| plan(&redis.url(), &receiver, &folder).set("ledger.path", usage.display().to_string()).start();
    let services: Vec<_> = (0..PROCESSES).map(start).collect();
    let runtime = Runtime::new().expect("a runtime");
    let requests = runtime.block_on(use_up_all_keys(&services, &mut Rng::with_seed(7)));
    assert!(requests >= 2_000);
    wait::expect("60 messages", || told(&services, "sent") == 60);
    assert_each_once(&receiver);
    assert_signed(&receiver.received()[0]);
    assert_eq!((told(&services, "failed"), told(&services, "dropped")), (0, 0));
    assert!(told(&services, "known") > 60, "several processes saw most shares");
    let marks: Vec<String> = redis.run(&["KEYS", "it:n:*"]).expect("keys");
    assert_eq!(marks.len(), 60);
    let left_ms: i64 = redis.run(&["PTTL", &marks[0]]).expect("an end");
    assert!((1..=366 * 86_400_000).contains(&left_ms), "{left_ms}");
    services.into_iter().for_each(stop);
    let lines = lines(&usage);
    assert_eq!(lines.iter().filter(|line| line.reached.is_some()).count(), 60);
    let (code, text, errors) = crate::ledger::service::usage(&["--by", "rule", &usage.display().to_string()]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    // A process may have taken back more than it recorded.
    let sum = |field: fn(&Line<'_>) -> u64| lines.iter().map(field).sum::<u64>();
    assert_eq!(sum(|line| line.units) - sum(|line| line.back), 20 * KEYS as u64, "{text}");
}

#[tokio::test]
async fn in_a_cluster_each_mark_is_set_on_its_primary() {
    let (cluster, receiver) = (Cluster::start(), Receiver::start(&["200 OK"]));
    let folder = TempDir::new().expect("a folder");
    let start = |_| {
        let plan = plan(&cluster.urls().join(","), &receiver, &folder);
        plan.set("store.redis.topology", Topology::Cluster.into_str()).start()
    };
    let services: Vec<_> = (0..PROCESSES).map(start).collect();
    use_up_all_keys(&services, &mut Rng::with_seed(8)).await;
    wait::expect("60 messages", || told(&services, "sent") == 60);
    assert_each_once(&receiver);
    let marks = |node: &Redis| node.run::<Vec<String>>(&["KEYS", "it:n:*"]).expect("keys").len();
    let marks: Vec<_> = cluster.nodes().iter().map(marks).collect();
    assert!(marks.iter().all(|count| *count > 0) && marks.iter().sum::<usize>() == 60, "{marks:?}");
}

#[tokio::test]
async fn while_redis_is_away_nothing_is_told_and_the_next_request_after_it_tells() {
    let (mut redis, receiver) = (Redis::start(), Receiver::start(&["200 OK"]));
    let folder = TempDir::new().expect("a folder");
    let plan = plan(&redis.url(), &receiver, &folder).set("defaults.on_store_failure", "local");
    let services = [plan.start()];
    let url = format!("http://127.0.0.1:{}/json", services[0].http_port());
    let take = async |units: u64| {
        let entry = json!({"key": "customer", "value": "a"});
        let body = json!({"domain": "d", "descriptors": [{"entries": [entry], "hitsAddend": units}]});
        Client::new().post(&url).body(body.to_string()).send().await.expect("an answer")
    };
    redis.stop();
    for _ in 0..20 {
        assert_eq!(take(1).await.status(), 200, "decided by the policy");
    }
    assert_eq!(told(&services, "sent") + told(&services, "dropped"), 0);
    redis.restart();
    wait::until_async(wait::PATIENCE, async || {
        take(1).await;
        (told(&services, "sent") == 3).then_some(())
    })
    .await
    .expect("all three shares");
    assert_eq!(receiver.received().len(), 3);
}

#[tokio::test]
async fn without_permission_for_set_each_process_tells_for_itself_and_says_so() {
    let (redis, receiver) = (Redis::start(), Receiver::start(&["200 OK"]));
    redis.run::<()>(&["ACL", "SETUSER", "default", "-set"]).expect("ACL SETUSER");
    let folder = TempDir::new().expect("a folder");
    let services: Vec<_> = (0..2).map(|_| plan(&redis.url(), &receiver, &folder).start()).collect();
    for service in &services {
        let url = format!("http://127.0.0.1:{}/json", service.http_port());
        let entry = json!({"key": "customer", "value": "a"});
        let body = json!({"domain": "d", "descriptors": [{"entries": [entry], "hitsAddend": 10}]});
        for _ in 0..2 {
            Client::new().post(&url).body(body.to_string()).send().await.expect("an answer");
        }
        service.log_with("Redis does not permit SET for notify");
    }
    // 10 of 20 by the first process; 20 of 20 by the second.
    wait::expect("each share it saw, from each process", || told(&services, "sent") == 3 + 3);
    let ids: Vec<_> = receiver.received().iter().map(|one| one.header("webhook-id").to_owned()).collect();
    assert_eq!(ids.len(), 6);
}
