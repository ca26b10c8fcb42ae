//! `ShouldRateLimit` of the running binary, called by a client with independent message definitions.

mod answers;
mod bytes;
mod hostile;
mod kuadrant;
mod limits;
mod memory;
mod raw_codec;
mod services;

use envoy_types::pb::google::protobuf::UInt64Value;

use crate::support::grpc::{Code, RateLimitDescriptor, RateLimitRequest, Rls, descriptor};
use crate::support::process::{Plan, Ratelimitd};

/// The fixed windows last a year, so that none ends during a test.
const RULES: &str = r#"
domain: test
descriptors:
  - { key: user, rate_limit: { unit: year, requests_per_unit: 3, name: per user } }
  - { key: team, rate_limit: { unit: year, requests_per_unit: 10, name: per team } }
  - { key: slow, rate_limit: { unit: hour, requests_per_unit: 1, algorithm: gcra } }
  - { key: wide, rate_limit: { unit: day, unit_multiplier: 10, requests_per_unit: 5 } }
  - { key: week, rate_limit: { unit: week, requests_per_unit: 5 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: blocked, rate_limit: { unit: day, requests_per_unit: 0, algorithm: token_bucket } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: quota_a, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: quota_b, quota_mode: true, rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: "escaped", rate_limit: { unit: year, requests_per_unit: 5, name: "a\r\nSet-Cookie: \"x\"" } }
  - { key: annotated, metadata: { tier: gold, depth: { n: 3 } }, rate_limit: { unit: year, requests_per_unit: 9 } }
  - key: both
    rate_limits:
      - { unit: year, requests_per_unit: 4, algorithm: gcra, burst: 2 }
      - { unit: month, requests_per_unit: 9, algorithm: sliding_window }
  - { key: queue, rate_limit: { unit: hour, requests_per_unit: 2, algorithm: leaky_bucket, mode: queue, burst: 3 } }
"#;

/// A service with the rules of this file and the default settings.
fn service() -> Ratelimitd {
    plan().start()
}

fn plan() -> Plan {
    Plan::new(RULES).server_of(module_path!())
}

/// A descriptor with one entry and its own hits.
fn with_hits(key: &str, value: &str, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(UInt64Value { value: hits }), ..descriptor(&[(key, value)]) }
}

fn request_for(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    crate::support::grpc::request("test", descriptors)
}

/// Sends one descriptor. Returns its code and the remaining units.
async fn decide_one(rls: &mut Rls, descriptor: RateLimitDescriptor) -> (Code, u32) {
    let answer = rls.send(request_for(vec![descriptor])).await.expect("an answer");
    let [status] = &answer.statuses[..] else { panic!("one status per descriptor: {answer:?}") };
    assert_eq!(status.code(), answer.overall_code(), "the overall code is that of the only descriptor");
    (status.code(), status.limit_remaining)
}
