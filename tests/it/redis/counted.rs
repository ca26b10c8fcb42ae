//! `count: true` on Redis: the same numbers as in memory, and no denial without Redis.

use serde_json::json;

use crate::service::counted::{check_counts, redis_plan};
use crate::service::usage::{body, descriptor, send};
use crate::support::redis::Redis;

#[test]
fn what_is_unlimited_is_counted_in_redis() {
    let mut redis = Redis::start();
    let service = redis_plan(&redis.url()).set("store.redis.timeout", "5s").start();
    check_counts(&service);
    redis.stop();
    let answer = send(service.http_port(), "/json", &body(&[descriptor("open", "q")]), None);
    let answer: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(answer["statuses"], json!([{"code": "OK", "limitRemaining": u32::MAX}]), "{answer}");
}
