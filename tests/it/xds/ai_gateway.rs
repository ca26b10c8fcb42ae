//! The quotas of Envoy AI Gateway, in the form in which its controller sends them, with the calls of its Envoys: a
//! request costs 1 before it, and its tokens when its stream ends. The rows are those of docs/recipes-proxies.md.

use envoy_types::pb::google::protobuf::{Any, UInt64Value};
use serde_json::{Value, json};

use super::plan;
use super::resource::resource;
use crate::support::ads::AdsServer;
use crate::support::grpc::{Code, RateLimitDescriptor, Rls, descriptor, request};
use crate::support::process::Ratelimitd;

/// The name and the domain of the only resource.
const DOMAIN: &str = "ai-gateway-quota";
const NODE: &str = "envoy-ai-gateway-ratelimit";
const BACKEND: (&str, &str) = ("backend_name", "default/openai");
const MODEL: &str = "model_name_override";
/// The keys of bucket rules are their own values, except for a header whose values are distinct.
const GOLD: &str = "rule-0-x-tenant|gold-match-0";
const DISTINCT: &str = "rule-0-x-user-match-0";
const DEFAULT: &str = "rule-1-match--1";

/// In a year no window ends during a test; the gateway sends seconds to days.
fn limit(tokens: u32) -> Value {
    json!({"unit": "YEAR", "requests_per_unit": tokens})
}

fn bucket_rule(key: &str, tokens: u32, shadow: bool) -> Value {
    let limit = limit(tokens);
    json!({"key": key, "value": key, "rate_limit": limit, "quota_mode": true, "shadow_mode": shadow})
}

/// The quotas of one backend.
fn quotas() -> Any {
    let buckets = |name: &str, first: Value| {
        let buckets = [first, bucket_rule(DEFAULT, 10, false)];
        json!({"key": MODEL, "value": name, "descriptors": buckets})
    };
    let models = json!([
        {"key": MODEL, "value": "simple", "rate_limit": limit(10), "quota_mode": true},
        buckets("buckets", bucket_rule(GOLD, 50, false)),
        buckets("shadow", bucket_rule(GOLD, 50, true)),
        buckets("distinct", json!({"key": DISTINCT, "rate_limit": limit(10), "quota_mode": true})),
    ]);
    let backend = json!({"key": BACKEND.0, "value": BACKEND.1, "descriptors": models});
    resource(&json!({"name": DOMAIN, "domain": DOMAIN, "descriptors": [backend]}))
}

/// A service with the settings of the page, after the controller has sent its first quotas.
async fn start(server: &AdsServer, upgrades: &str) -> Ratelimitd {
    let plan = plan(server)
        .set("rules.xds.node_id", NODE)
        .set("rules.xds.start_without_rules", true)
        .env("UPGRADES", upgrades);
    let service = plan.start();
    server.set("1", vec![quotas()]);
    let request = server.expect_ack("1").await.request;
    assert_eq!(request.node.map_or_else(String::new, |node| node.id), NODE);
    service
}

/// The descriptor of a bucket of a model, or of a model without buckets.
fn bucket(name: &str, keys: &[(&str, &str)]) -> RateLimitDescriptor {
    descriptor(&[[BACKEND, (MODEL, name)].as_slice(), keys].concat())
}

async fn ask(rls: &mut Rls, descriptors: Vec<RateLimitDescriptor>) -> bool {
    let answer = rls.send(request(DOMAIN, descriptors)).await.expect("an answer");
    answer.overall_code() == Code::Ok
}

/// The call when a stream ends. Envoy ignores its answer.
async fn charge(rls: &mut Rls, mut descriptor: RateLimitDescriptor, tokens: u64) {
    descriptor.hits_addend = Some(UInt64Value { value: tokens });
    rls.send(request(DOMAIN, vec![descriptor])).await.expect("an answer");
}

/// How many of 60 equal requests are admitted.
async fn admitted(rls: &mut Rls, descriptors: &[RateLimitDescriptor]) -> usize {
    let mut admitted = 0;
    for _ in 0..60 {
        admitted += usize::from(ask(rls, descriptors.to_vec()).await);
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_denies_when_its_tokens_are_used() {
    let sliding = r#"[{domain: ai-gateway-quota, algorithm: sliding_window, charging: postpaid}]"#;
    let prepaid = r#"[{domain: ai-gateway-quota, algorithm: sliding_window}]"#;
    for (upgrades, second) in [("[]", false), (sliding, false), (prepaid, true)] {
        let server = AdsServer::start().await;
        let service = start(&server, upgrades).await;
        let mut rls = Rls::connect(service.grpc_port()).await;
        let simple = || bucket("simple", &[]);
        assert!(ask(&mut rls, vec![simple()]).await, "{upgrades}");
        charge(&mut rls, simple(), 20).await;
        // The trap of the page: without `postpaid`, a charge that does not fit is not recorded.
        assert_eq!(ask(&mut rls, vec![simple()]).await, second, "{upgrades}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_denied_when_all_its_buckets_are_used() {
    let server = AdsServer::start().await;
    let service = start(&server, "[]").await;
    let mut rls = Rls::connect(service.grpc_port()).await;
    let gold = [(GOLD, GOLD)];
    let default = [(DEFAULT, DEFAULT)];
    for name in ["buckets", "shadow", "distinct"] {
        charge(&mut rls, bucket(name, &default), 20).await;
        assert!(!ask(&mut rls, vec![bucket(name, &default)]).await, "{name}: the default bucket is used");
    }
    let of_gold = |name| [bucket(name, &gold), bucket(name, &default)];
    assert_eq!(admitted(&mut rls, &of_gold("buckets")).await, 50);
    assert_eq!(admitted(&mut rls, &of_gold("shadow")).await, 60, "a shadow quota is never over its limit");
    for user in ["ann", "bob"] {
        let own = [bucket("distinct", &[(DISTINCT, user)]), bucket("distinct", &default)];
        assert_eq!(admitted(&mut rls, &own).await, 10, "{user}");
    }
    assert!(ask(&mut rls, vec![bucket("unknown", &[])]).await, "a model without a quota");
}
