//! `ratelimitctl counters` and `/metrics` with slots, in memory and in Redis.

use super::counters::counters_of;
use crate::support::grpc::{Code, Rls};
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;

const RULES: &str = "
domain: shop
descriptors:
  - key: tenant
    rate_limit: { name: streams, unit: hour, requests_per_unit: 3, algorithm: concurrency }
";

async fn check(service: &Ratelimitd) {
    let shop = |arguments: &[&str]| counters_of(service, "shop", arguments);
    let mut rls = Rls::connect(service.grpc_port()).await;
    for _ in 0..3 {
        assert_eq!(rls.send_one("shop", &[("tenant", "acme")]).await.0, Code::Ok);
    }
    assert_eq!(rls.send_one("shop", &[("tenant", "acme")]).await.0, Code::OverLimit);
    let (code, text, _) = shop(&["show", "tenant=acme"]);
    assert_eq!(code, Some(0));
    assert!(text.contains(": 3 of 3 open, since ") && text.ends_with(") (streams)\n"), "{text}");
    assert_eq!(text.matches("(ends in ").count(), 3, "{text}");
    let set = ["set", "--limit-name", "streams", "--used", "1", "--reason", "test", "tenant=acme"];
    let (code, _, error) = shop(&set);
    assert_ne!(code, Some(0));
    assert!(error.contains("only requests take the slots of the limit streams"), "{error}");
    assert_eq!(shop(&["reset", "tenant=acme"]).0, Some(0));
    assert!(shop(&["show", "tenant=acme"]).1.contains(": 0 of 3 open (streams)"));
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let taken = "ratelimitd_slots_total{domain=\"shop\",result=\"taken\",rule=\"streams\"} 3\n";
    assert!(metrics.contains(taken), "{metrics}");
}

#[tokio::test]
async fn operators_see_and_release_open_slots_in_memory() {
    check(&Ratelimitd::start(RULES)).await;
}

pub(crate) async fn check_in_redis() {
    let redis = Redis::start();
    let service = Plan::new(RULES).redis(&redis.url()).set("store.redis.timeout", "5s").start();
    check(&service).await;
}
