//! The deny cache in front of Redis: how many calls it saves, and what answers from it contain.

use envoy_types::pb::google::protobuf::UInt64Value;

use crate::support::grpc::{Code, RateLimitDescriptor, Rls, descriptor, request};
use crate::support::http;
use crate::support::process::Plan;
use crate::support::redis::Redis;

const RULES: &str = "
domain: d
descriptors:
  - { key: prepaid, rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra } }
  - { key: postpaid, rate_limit: { unit: year, requests_per_unit: 5 } }
";

#[tokio::test(flavor = "multi_thread")]
async fn an_attack_on_one_key_causes_few_calls_to_redis() {
    let redis = Redis::start();
    let service = Plan::new(RULES).redis(&redis.url()).set("store.redis.timeout", "5s").start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let scripts = || {
        let stats: String = redis.run(&["INFO", "commandstats"]).expect("INFO");
        let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
        line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).expect("a count of calls")
    };
    for key in ["prepaid", "postpaid"] {
        let before = scripts();
        let mut codes = Vec::new();
        for _ in 0..500 {
            codes.push(rls.send_one("d", &[(key, "x")]).await.0);
        }
        assert!(codes[..5].iter().all(|code| *code == Code::Ok), "{key}");
        assert!(codes[5..].iter().all(|code| *code == Code::OverLimit), "{key}");
        // Six until the first denial, then at most one per second, also on a slow machine.
        assert!(scripts() - before < 50, "{} calls for 500 requests on {key}", scripts() - before);
    }
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("metrics").body;
    let hits = metrics.lines().find_map(|line| line.strip_prefix("ratelimitd_deny_cache_hits_total "));
    assert!(hits.and_then(|hits| hits.parse::<u64>().ok()).is_some_and(|hits| hits > 900), "{hits:?}");
    assert!(metrics.contains(r#"outcome="over_limit",rule="d.prepaid"} 495"#), "{metrics}");
}

/// The codes of 30 hits by one caller, and of two hits by another after it gave 3 units back.
async fn codes_around_a_refund(attacker: u16, refunding: u16) -> (Vec<Code>, Vec<Code>) {
    let [mut attacker, mut refunding] = [Rls::connect(attacker).await, Rls::connect(refunding).await];
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for _ in 0..30 {
        before.push(attacker.send_one("d", &[("postpaid", "x")]).await.0);
    }
    let hits_addend = Some(UInt64Value { value: 3 });
    let refund =
        RateLimitDescriptor { is_negative_hits: true, hits_addend, ..descriptor(&[("postpaid", "x")]) };
    refunding.send(request("d", vec![refund])).await.expect("an answer");
    for _ in 0..2 {
        after.push(refunding.send_one("d", &[("postpaid", "x")]).await.0);
    }
    (before, after)
}

/// A postpaid limit counts the hits that it denies. A refund then frees none that was used.
#[tokio::test(flavor = "multi_thread")]
async fn a_refund_to_a_used_up_postpaid_limit_frees_no_used_unit() {
    let memory = Plan::new(RULES).start();
    let expected = codes_around_a_refund(memory.grpc_port(), memory.grpc_port()).await;
    assert_eq!(expected.1, [Code::OverLimit; 2]);
    for through_another in [false, true] {
        let redis = Redis::start();
        let [first, second] = [(); 2].map(|()| Plan::new(RULES).redis(&redis.url()).start());
        let refunding = if through_another { second.grpc_port() } else { first.grpc_port() };
        let codes = codes_around_a_refund(first.grpc_port(), refunding).await;
        assert_eq!(codes, expected, "through another instance: {through_another}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_describe_all_limits_also_if_the_cache_denies() {
    let redis = Redis::start();
    let rules = "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: burst, unit: hour, requests_per_unit: 3, algorithm: gcra }
      - { name: daily, unit: year, requests_per_unit: 5, algorithm: gcra }
  - { key: other, rate_limit: { name: other, unit: year, requests_per_unit: 1, algorithm: gcra } }
";
    let plan = Plan::new(rules).redis(&redis.url()).set("response.headers", "ietf");
    let service = plan.set("response.retry_after", true).start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let mut headers = async |keys: &[&str]| {
        let descriptors = keys.iter().map(|key| descriptor(&[(key, "x")])).collect();
        let answer = rls.send(request("d", descriptors)).await.expect("an answer");
        let all = answer.response_headers_to_add.into_iter();
        all.map(|header| (header.key, header.value)).collect::<std::collections::HashMap<_, _>>()
    };
    for _ in 0..3 {
        headers(&["user"]).await;
    }
    let from_redis = headers(&["user"]).await;
    assert!(from_redis["RateLimit"].contains("\"daily\";r=2;"), "{from_redis:?}");
    // Denied by the cache: the other limit has not changed.
    let again = headers(&["user"]).await;
    assert!(again["RateLimit"].contains("\"daily\";r=2;"), "{again:?}");
    // Used up without a denial, so the cache has no entry.
    headers(&["other"]).await;
    let both = headers(&["user", "other"]).await;
    let wait: u64 = both["Retry-After"].parse().expect("seconds");
    assert!(wait > 300 * 86_400, "the longest wait counts: {both:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_deny_nothing_have_a_status_also_if_the_cache_denies() {
    let redis = Redis::start();
    let rules = "
domain: d
descriptors:
  - { key: full, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 5 } }
  - { key: prepaid, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 7, algorithm: gcra } }
";
    let service = Plan::new(rules).redis(&redis.url()).set("store.redis.timeout", "5s").start();
    let mut rls = Rls::connect(service.grpc_port()).await;
    let check = |key| RateLimitDescriptor {
        hits_addend: Some(UInt64Value { value: 0 }),
        ..descriptor(&[(key, "x")])
    };
    // One call fills the limit, the second is denied by Redis, and the third by the cache.
    for answered_by in ["Redis", "Redis", "the cache"] {
        let descriptors =
            vec![descriptor(&[("full", "x")]), check("shadow"), descriptor(&[("prepaid", "x")])];
        let answer = rls.send(request("d", descriptors)).await.expect("an answer");
        let limits = answer.statuses.into_iter().map(|status| status.current_limit);
        let limits: Vec<_> = limits.map(|limit| limit.map(|limit| limit.requests_per_unit)).collect();
        assert_eq!(limits, [Some(1), Some(5), Some(7)], "answered by {answered_by}");
    }
}
