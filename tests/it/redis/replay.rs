//! `replay` on Redis: the known answers, and the same bytes as from memory.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use ratelimitd::replay::{MemoryReplay, RedisReplay};

use crate::cli::replay::{KEYS, T0, known_answers, line, replayed};
use crate::support::properties;
use crate::support::redis::Redis;

#[test]
fn redis_gives_the_known_answers() {
    let redis = Redis::start();
    known_answers(&mut RedisReplay::connect(&redis.url()).expect("Redis answers"));
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
        let mut on_redis = RedisReplay::connect(&redis.url()).expect("Redis answers");
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
