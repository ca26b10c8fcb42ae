//! `/check` with counters in Redis, and without the Redis.

use super::Checked;
use crate::support::redis::Redis;

const MAP: &str = "domain: edge\ndescriptors:\n  - - { key: client, from: remote_addr }\n";
const CLIENT: [(&str, &str); 1] = [("x-forwarded-for", "192.0.2.1")];

#[test]
fn two_processes_share_the_counters() {
    let redis = Redis::start();
    let [one, other] = [(); 2].map(|()| Checked::start_with(MAP, |plan| plan.redis(&redis.url())));
    assert_eq!(one.statuses(3, "/check", &CLIENT), [200; 3]);
    assert_eq!(other.statuses(3, "/check", &CLIENT), [200, 200, 429]);
    let denied = one.get("/check", &CLIENT);
    assert!(denied.status == 429 && denied.header("retry-after").is_some(), "{denied:?}");
}

#[test]
fn without_redis_the_policy_of_the_limit_answers() {
    let mut redis = Redis::start();
    let policy = |policy| {
        let url = redis.url();
        Checked::start_with(MAP, move |plan| plan.redis(&url).set("defaults.on_store_failure", policy))
    };
    let [error, allow, deny, local] = ["error", "allow", "deny", "local"].map(policy);
    redis.stop();
    for (checked, expected) in [(&error, 500), (&allow, 200), (&deny, 429)] {
        assert_eq!(checked.get("/check", &CLIENT).status, expected);
    }
    assert_eq!(local.statuses(6, "/check", &CLIENT), [200, 200, 200, 200, 200, 429], "its own counters");
    assert!(error.get("/check", &CLIENT).body.starts_with("counters unavailable ("));
    let denied = deny.get("/check", &CLIENT);
    let wait = denied.header("retry-after").and_then(|wait| wait.parse::<u64>().ok());
    assert!(wait.is_some_and(|wait| wait >= 1), "{denied:?}");
}
