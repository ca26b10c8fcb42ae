//! The recorded answers of the random corpus, decided by Redis.

use crate::cli::answers_corpus::check_all;
use crate::support::redis::Redis;

#[test]
fn redis_gives_the_recorded_answers() {
    let redis = Redis::start();
    check_all("redis", Some(&redis.url()));
}
