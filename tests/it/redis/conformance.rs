//! The recorded answers of envoyproxy/ratelimit, played with counters in Redis.

use crate::conformance::{Counters, play_all};
use crate::support::redis::Redis;

#[test]
fn answers_are_those_of_the_reference() {
    let redis = Redis::start();
    play_all(Counters::Redis(&redis.url()));
}
