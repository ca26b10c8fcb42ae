//! The contract of every store, held against Redis.

use ratelimitd::replay::RedisReplay;

use crate::store::contract::{Store, promises};
use crate::support::redis::Redis;

#[test]
fn redis_keeps_the_contract() {
    let redis = Redis::start();
    promises(&mut Store(RedisReplay::connect(&redis.url()).expect("Redis is there")));
}
