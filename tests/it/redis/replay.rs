//! `replay` on Redis: how it connects, the known answers, and the same bytes as from memory.

use std::path::Path;

use ::simulate::replay::{MemoryReplay, RedisAccess, RedisReplay};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::cli::replay::{KEYS, T0, command, known_answers, line, replayed};
use crate::redis::security::tls_server;
use crate::rules::left_alone::{
    a_charge_gives_back_what_its_check_took, a_limit_of_0_keeps_the_counter,
    another_limit_of_the_rule_counts_on,
};
use crate::rules::reserve::checks_and_charges_have_the_known_answers;
use crate::rules::soft_limits::soft_limits_have_the_known_answers;
use crate::settle::check_recorded_calls;
use crate::support::certificates::Authority;
use crate::support::properties;
use crate::support::redis::Redis;

pub(super) fn access(url: String) -> RedisAccess {
    RedisAccess { url, ..RedisAccess::default() }
}

#[test]
fn the_command_connects_with_a_password_file_and_certificates() {
    let authority = Authority::new();
    let (redis, port) = tls_server(&authority, &authority.certificate_for(&["127.0.0.1"]), "yes");
    redis.run::<()>(&["CONFIG", "SET", "requirepass", "in a file"]).expect("CONFIG");
    let password = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(password.path(), "in a file\n").expect("room for a password");
    let client = authority.certificate_for(&["replay"]);
    let url = format!("rediss://127.0.0.1:{port}");
    let path = |path: &Path| path.display().to_string();
    let files = [
        ("--redis-password-file", path(password.path())),
        ("--redis-ca-file", path(&authority.file())),
        ("--redis-cert-file", path(&client.certificate)),
        ("--redis-key-file", path(&client.key)),
    ];
    let run = |without: &[&str]| {
        let options = files.iter().filter(|(option, _)| !without.contains(option));
        let options = options.flat_map(|(option, file)| [*option, file]);
        let arguments: Vec<_> = ["--redis", &url].into_iter().chain(options).collect();
        let output = command(line(T0, &[("gcra", 1, false)]), &arguments);
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    assert_eq!(run(&[]), (Some(0), "1 requests, 0 over limit\n  d.gcra: 0 of 1 over limit\n".to_owned()));
    for without in
        [&["--redis-password-file"][..], &["--redis-ca-file"], &["--redis-cert-file", "--redis-key-file"]]
    {
        let (code, error) = run(without);
        assert!(code == Some(2) && error.starts_with("redis: "), "without {without:?}: {code:?} {error}");
    }
    let (code, error) = run(&["--redis-key-file"]);
    assert!(code == Some(2) && error.contains("--redis-key-file"), "a certificate without its key: {error}");
}

#[test]
fn redis_gives_the_known_answers() {
    let redis = Redis::start();
    known_answers(&mut RedisReplay::connect(access(redis.url())).expect("Redis answers"));
}

#[test]
fn redis_gives_the_known_answers_of_soft_limits_and_of_reserve() {
    let redis = Redis::start();
    let store = &mut RedisReplay::connect(access(redis.url())).expect("Redis answers");
    soft_limits_have_the_known_answers(store);
    checks_and_charges_have_the_known_answers(store);
}

#[test]
fn redis_leaves_alone_what_a_change_is_not_of() {
    let redis = Redis::start();
    let store = &mut RedisReplay::connect(access(redis.url())).expect("Redis answers");
    a_limit_of_0_keeps_the_counter(store);
    another_limit_of_the_rule_counts_on(store);
    a_charge_gives_back_what_its_check_took(store);
    check_recorded_calls(store);
}

/// A descriptor: the index of its key in [`KEYS`], its hits, and whether it is a refund.
type Hit = (usize, u64, bool);

/// Requests: how far the clock moves (rarely back) before each, and its descriptors.
fn traffic() -> impl Strategy<Value = Vec<(i64, Vec<Hit>)>> {
    let clock =
        prop_oneof![6 => Just(0_i64), 12 => 0..400_000_i64, 1 => 0..30_000_000_i64, 1 => -400_000..0_i64];
    let hits = prop_oneof![10 => 1..4_u64, 2 => Just(0), 1 => 0..100_u64, 1 => Just(u64::MAX)];
    let descriptor = (0..KEYS.len(), hits, prop::bool::weighted(0.1));
    prop::collection::vec((clock, prop::collection::vec(descriptor, 1..5)), 1..120)
}

#[test]
fn memory_and_redis_write_the_same_bytes() {
    let redis = Redis::start();
    let mut runner = TestRunner::new(ProptestConfig { cases: 60, ..properties::config(file!()) });
    let result = runner.run(&traffic(), |traffic| {
        let mut now_us = T0;
        let lines = traffic.iter().map(|(clock_us, descriptors)| {
            now_us = now_us.saturating_add_signed(*clock_us);
            let named: Vec<_> =
                descriptors.iter().map(|&(key, hits, refund)| (KEYS[key], hits, refund)).collect();
            line(now_us, &named)
        });
        let requests = lines.collect::<Vec<_>>().join("\n");
        let mut on_redis = RedisReplay::connect(access(redis.url())).expect("Redis answers");
        prop_assert_eq!(replayed(&mut MemoryReplay::new(), &requests), replayed(&mut on_redis, &requests));
        on_redis.remove_keys().expect("Redis answers");
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    let left: i64 = redis.run(&["DBSIZE"]).expect("DBSIZE");
    assert_eq!(left, 0, "a replay leaves no keys behind");
}
