//! The recipes of docs/recipes.md and docs/recipes-proxies.md, played in Redis.

use ::simulate::replay::{RedisAccess, RedisReplay};

use crate::recipes::month::play_month;
use crate::recipes::play_all;
use crate::support::redis::Redis;

#[test]
fn every_recipe_answers_its_requests_in_redis() {
    let redis = Redis::start();
    let access = RedisAccess { url: redis.url(), ..RedisAccess::default() };
    play_all(&mut RedisReplay::connect(access).expect("Redis answers"));
}

#[test]
fn the_tokens_booked_in_a_month_are_the_real_ones_in_redis() {
    let redis = Redis::start();
    let access = || RedisAccess { url: redis.url(), ..RedisAccess::default() };
    play_month(4_000, || RedisReplay::connect(access()).expect("Redis answers"));
}
