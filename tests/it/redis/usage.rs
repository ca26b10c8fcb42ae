//! Usage on Redis: the numbers, what reading leaves behind, outages, lists in a cluster.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::service::counted::{check_counts, redis_plan};
use crate::service::secrets::{KEY, RULES as SECRET_RULES, TOKEN};
use crate::service::usage::{body, charge, check_list, check_numbers, descriptor, plan, send, usage};
use crate::support::process::Plan;
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;

fn on(redis: &Redis) -> Plan {
    plan().redis(&redis.url()).set("store.redis.timeout", "5s")
}

#[test]
fn the_numbers_are_those_of_a_model_in_redis() {
    let redis = Redis::start();
    check_numbers(&on(&redis).start());
}

/// All counters with their contents and the times at which they expire.
fn counters(redis: &Redis) -> BTreeMap<String, (Vec<u8>, i64)> {
    let keys: Vec<String> = redis.run(&["KEYS", "*{shop|*"]).expect("KEYS");
    let stored = keys.into_iter().map(|key| {
        let dump = redis.run(&["DUMP", &key]).expect("DUMP");
        let expires = redis.run(&["PEXPIRETIME", &key]).expect("PEXPIRETIME");
        (key, (dump, expires))
    });
    stored.collect()
}

/// Calls of each command since the last reset of the statistics.
fn commands(redis: &Redis) -> BTreeMap<String, u64> {
    let text: String = redis.run(&["INFO", "commandstats"]).expect("INFO");
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

#[test]
fn reading_changes_nothing_in_redis_and_takes_one_call() {
    let redis = Redis::start();
    let service = on(&redis).start();
    for (key, hits) in [("customer", 321), ("tokens", 0), ("llm", 7), ("quiet", 6), ("part", 2)] {
        charge(&service, key, "x", hits);
    }
    let before = counters(&redis);
    assert_eq!(before.len(), 13, "{:?}", before.keys());
    let asked = ["customer", "tokens", "llm", "quiet"].map(|key| descriptor(key, "x"));
    let many: Vec<_> = (0..96).map(|n| descriptor("customer", &n.to_string())).chain(asked).collect();
    let _: String = redis.run(&["CONFIG", "RESETSTAT"]).expect("CONFIG");
    let read = usage(&service, &many);
    let calls = commands(&redis);
    let used = [&read[96][1], &read[97][0], &read[98][0], &read[99][0]].map(|limit| limit["used"].clone());
    assert_eq!(used, [321, 10, 7, 6].map(Value::from), "the check of a limit with reserve took 10");
    assert_eq!(counters(&redis), before);
    let writes = ["set", "psetex", "setrange", "expire", "pexpire", "rpush", "lset", "ltrim", "del"];
    let written: Vec<_> = writes.iter().filter(|name| calls.contains_key(**name)).collect();
    assert!(written.is_empty(), "{calls:?}");
    // A call of the script reads its counters with one command. Other scripts do not use it.
    assert_eq!(calls["mget"], 1, "{calls:?}");
}

#[test]
fn without_redis_usage_is_unknown() {
    let mut redis = Redis::start();
    const LOCAL: &str = "
domain: shop
descriptors: [{ key: customer, rate_limit: { unit: year, requests_per_unit: 9, on_store_failure: local } }]
";
    let service = Plan::new(LOCAL).redis(&redis.url()).start();
    charge(&service, "customer", "x", 5);
    redis.stop();
    charge(&service, "customer", "x", 5);
    let answer = send(service.http_port(), "/usage", &body(&[descriptor("customer", "x")]), None);
    assert_eq!(answer.status, 503, "{}", answer.body);
    let kinds = ["unreachable", "timeout", "breaker_open"];
    let texts = kinds.map(|kind| format!("counters unavailable ({kind})\n"));
    assert!(texts.contains(&answer.body), "{}", answer.body);
}

#[test]
fn a_list_has_the_most_used_counters_in_redis() {
    let redis = Redis::start();
    let service = check_list(on(&redis), 120);
    drop(service);
    let clients: String = redis.run(&["CLIENT", "LIST"]).expect("CLIENT LIST");
    assert_eq!(clients.lines().count(), 1, "a list leaves no connection: {clients}");
}

#[test]
fn a_list_reads_every_node_of_a_cluster() {
    let cluster = Cluster::start();
    let urls = cluster.urls().join(",");
    check_list(
        plan().redis(&urls).set("store.redis.timeout", "5s").set("store.redis.topology", "cluster"),
        120,
    );
}

#[test]
fn a_list_shows_the_hash_of_a_secret_value() {
    let redis = Redis::start();
    let token = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(token.path(), "4dmin").expect("room for a few bytes");
    let service = Plan::new(SECRET_RULES)
        .redis(&redis.url())
        .set("store.redis.timeout", "5s")
        .set("secrets.key", KEY)
        .set("server.admin.token_file", token.path().to_string_lossy())
        .start();
    let asked = json!({"domain": "api", "descriptors": [descriptor("api_key", TOKEN)]});
    assert_eq!(send(service.http_port(), "/json", &asked, None).status, 200);
    let list = json!({"domain": "api", "rule": "api_key"});
    let answer = send(service.admin_port(), "/usage/list", &list, Some("4dmin"));
    assert!(!answer.body.contains(TOKEN), "{}", answer.body);
    let list: Value = serde_json::from_str(&answer.body).expect("JSON");
    let counter = &list["counters"][0];
    assert!(counter["entries"][0]["value"].as_str().is_some_and(|value| value.starts_with("%k")), "{list}");
    assert_eq!((&counter["used"], &counter["remaining"]), (&json!(1), &json!(1)), "{list}");
    let shown = send(service.admin_port(), "/counters/show", &asked, Some("4dmin"));
    let shown: Value = serde_json::from_str(&shown.body).expect("JSON");
    assert_eq!(counter["key"], shown["counters"][0]["key"]);
}

/// `count: true`: the same numbers as in memory, and no denial without Redis.
#[test]
fn what_is_unlimited_is_counted_in_redis() {
    let mut redis = Redis::start();
    let service = redis_plan(&redis.url()).set("store.redis.timeout", "5s").start();
    check_counts(&service);
    redis.stop();
    let answer = send(service.http_port(), "/json", &body(&[descriptor("open", "q")]), None);
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(answer["statuses"], json!([{"code": "OK", "limitRemaining": u32::MAX}]), "{answer}");
}
