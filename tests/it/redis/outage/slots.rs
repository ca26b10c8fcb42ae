//! A request over several cluster slots, one of them on a dead node: only the limits of that node are left to their
//! policies.

use envoy_types::pb::google::protobuf::UInt64Value;
use tonic::Code as Grpc;

use crate::support::grpc::{Code, RateLimitDescriptor, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::cluster::Cluster;
use crate::support::wait;

/// Five hits for each key; the policies are those of outages.
const RULES: &str = "
domain: d
descriptors:
  - { key: error, rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra } }
  - { key: allow, rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra, on_store_failure: allow } }
  - { key: deny, rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra, on_store_failure: deny } }
  - { key: local, rate_limit: { unit: year, requests_per_unit: 3, algorithm: gcra, on_store_failure: local } }
  - { key: dark, shadow_mode: true, rate_limit: { unit: year, requests_per_unit: 5, algorithm: gcra } }
";

struct Fixture {
    service: Ratelimitd,
    rls: Rls,
    cluster: Cluster,
    dead: usize,
}

impl Fixture {
    /// A service on a cluster of which one node is dead.
    async fn start() -> Self {
        let mut cluster = Cluster::start();
        let plan = Plan::new(RULES).redis(&cluster.urls().join(",")).set("store.redis.topology", "cluster");
        let service = plan.set("server.workers", 1).start();
        let rls = Rls::connect(service.grpc_port()).await;
        let dead = 0;
        cluster.stop(dead);
        Self { service, rls, cluster, dead }
    }

    /// A descriptor with this key whose counter is on the dead node or on a live one. The name makes it unique.
    fn descriptor(&self, key: &str, name: &str, is_dead: bool) -> RateLimitDescriptor {
        let is_right = |value: &String| {
            (self.cluster.primary_of(&format!("{{d|{key}={value}}}")) == self.dead) == is_dead
        };
        let value = (0..).map(|n| format!("{name}{n}")).find(is_right).expect("a value of this node");
        descriptor(&[(key, &value)])
    }

    /// The answers to requests with these descriptors: whether each is admitted.
    async fn ask(&mut self, count: usize, descriptors: &[RateLimitDescriptor]) -> Vec<Result<Code, Grpc>> {
        let mut codes = Vec::new();
        for _ in 0..count {
            let answer = self.rls.send(request("d", descriptors.to_vec())).await;
            codes.push(answer.map(|answer| answer.overall_code()).map_err(|status| status.code()));
        }
        codes
    }

    async fn remaining(&mut self, descriptor: &RateLimitDescriptor) -> u32 {
        let peek = RateLimitDescriptor { hits_addend: Some(UInt64Value { value: 0 }), ..descriptor.clone() };
        let answer = self.rls.send(request("d", vec![peek])).await.expect("a live node decides");
        answer.statuses[0].limit_remaining
    }
}

const OK: Result<Code, Grpc> = Ok(Code::Ok);
const OVER: Result<Code, Grpc> = Ok(Code::OverLimit);

#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_limit_still_denies_beside_a_limit_on_a_dead_node() {
    let mut fixture = Fixture::start().await;
    for policy in ["allow", "local", "dark", "error"] {
        for known in ["allow", "error"] {
            let name = format!("{policy}-{known}-");
            let live = fixture.descriptor(known, &name, false);
            let dead = fixture.descriptor(policy, &name, true);
            // Used up alone first.
            assert_eq!(
                fixture.ask(6, std::slice::from_ref(&live)).await,
                [OK, OK, OK, OK, OK, OVER],
                "{name}"
            );
            assert_eq!(fixture.ask(3, &[live, dead]).await, [OVER; 3], "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hits_are_charged_beside_a_limit_on_a_dead_node_that_lets_them_pass() {
    let mut fixture = Fixture::start().await;
    for (policy, admitted) in [("allow", 5), ("dark", 5), ("local", 3)] {
        let live = fixture.descriptor("error", policy, false);
        let dead = fixture.descriptor(policy, policy, true);
        let codes = fixture.ask(7, &[live.clone(), dead]).await;
        let expected: Vec<_> = (0..7).map(|n| if n < admitted { OK } else { OVER }).collect();
        assert_eq!(codes, expected, "{policy}");
        let left = 5 - u32::try_from(admitted).expect("small");
        let charged = wait::until_async(wait::PATIENCE, async || {
            (fixture.remaining(&live).await == left).then_some(())
        });
        assert!(charged.await.is_some(), "{policy}: only admitted hits stay recorded");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_stays_charged_if_the_policy_of_a_dead_node_denies_or_fails() {
    let mut fixture = Fixture::start().await;
    for (policy, expected) in [("deny", OVER), ("error", Err(Grpc::Unavailable))] {
        let live = fixture.descriptor("error", policy, false);
        let dead = fixture.descriptor(policy, policy, true);
        assert_eq!(fixture.ask(4, &[live.clone(), dead]).await, [expected; 4], "{policy}");
        let undone =
            wait::until_async(wait::PATIENCE, async || (fixture.remaining(&live).await == 5).then_some(()));
        assert!(undone.await.is_some(), "{policy}");
    }
    let metrics =
        crate::support::http::get(fixture.service.http_port(), "/metrics", &[]).expect("metrics").body;
    assert!(metrics.contains("ratelimitd_redis_lost_undos_total 0"), "{metrics}");
}
