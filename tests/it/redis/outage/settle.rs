//! Settles by a real Envoy while Redis is away: at the estimate, and at the settle.

use crate::support::envoy::settling::{ESTIMATE, SettlingEnvoy, expect_remaining, remaining, settles};
use crate::support::http;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::redis::proxy::Proxy;
use crate::support::wait;

struct Fixture {
    _redis: Redis,
    proxy: Proxy,
    service: Ratelimitd,
    envoy: SettlingEnvoy,
}

impl Fixture {
    fn start(policy: &str) -> Self {
        let redis = Redis::start();
        let proxy = Proxy::start(redis.address());
        let rules = crate::envoy::settle::RULES.replace("allow", policy);
        let service = Plan::new(&rules).redis(&format!("redis://{}/", proxy.address()));
        let service = service.set("server.workers", 1).start();
        let envoy = SettlingEnvoy::start(&service);
        Self { _redis: redis, proxy, service, envoy }
    }

    fn end_outage(&self) {
        self.proxy.restore();
        // The worker that Envoy calls has a connection of its own.
        wait::expect("Redis decides", || {
            let before = policy_decisions(&self.service);
            self.envoy.envoy.get_with("/silent", &[("x-tenant", "other")]);
            policy_decisions(&self.service) == before
        });
    }

    /// The units that remain, as Redis has them.
    fn remaining(&self) -> u64 {
        let left = wait::until(wait::PATIENCE, || {
            let before = policy_decisions(&self.service);
            let left = remaining(&self.service);
            (policy_decisions(&self.service) == before).then_some(left)
        });
        left.expect("an answer of Redis")
    }

    fn start_outage(&self) {
        self.proxy.refuse();
        self.proxy.cut();
    }

    /// Sends a request, which the upstream holds while `during` runs.
    fn hold(&self, path: &str, during: impl FnOnce()) {
        std::thread::scope(|scope| {
            let held = scope.spawn(|| self.envoy.get(path).status);
            during();
            self.envoy.release();
            assert_eq!(held.join().expect("an answer"), 200);
        });
    }
}

fn policy_decisions(service: &Ratelimitd) -> u64 {
    let metrics = http::get(service.http_port(), "/metrics", &[]).expect("an answer").body;
    let values = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("ratelimitd_policy_decisions_total{")?.split_once("} "));
    values.map(|(_, value)| value.parse::<u64>().expect("a whole number")).sum()
}

#[test]
fn an_estimate_that_redis_did_not_record_is_settled_by_all_of_the_real_cost() {
    for policy in ["allow", "local"] {
        let fixture = Fixture::start(policy);
        fixture.start_outage();
        let calls = fixture.envoy.calls();
        fixture.hold("/hold/300", || {
            wait::expect("an estimate by policy", || fixture.envoy.calls() > calls);
            let decided = "cluster.ratelimit.upstream_rq_completed";
            wait::expect("its answer", || fixture.envoy.envoy.stat(decided) > calls);
            fixture.end_outage();
        });
        expect_remaining(&fixture.service, 700);
        assert_eq!(settles(&fixture.service, "charged"), 1, "{policy}");
    }
}

#[test]
fn a_settle_that_does_not_reach_redis_is_lost_and_the_estimate_stays() {
    for policy in ["allow", "deny", "local", "error"] {
        let fixture = Fixture::start(policy);
        fixture.hold("/hold/150", || {
            expect_remaining(&fixture.service, 1_000 - ESTIMATE);
            fixture.start_outage();
        });
        wait::expect("a lost settle", || settles(&fixture.service, "lost") == 1);
        fixture.end_outage();
        assert_eq!(fixture.remaining(), 1_000 - ESTIMATE, "{policy}");
    }
}
