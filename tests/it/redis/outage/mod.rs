//! Outages of Redis: every fault, with the served process or the store alone. For each fault: what callers see and for
//! how long, what is logged and counted. The service recovers without a restart, and no call is charged twice.

use ::base::clock::monotonic;
use tonic::Code as Grpc;

use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, wait};

mod answers;
mod connections;
mod envoy;
mod idle;
mod json;
mod log;
mod names;
mod nodes;
mod overload;
mod policies;
mod readiness;
mod replies;
mod settle;
mod slots;
mod store;

const LIMIT: u32 = 1_000;

const RULES: &str = "
domain: d
descriptors:
  - { key: error, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: gcra } }
  - { key: allow, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: gcra, on_store_failure: allow } }
  - { key: deny, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: gcra, on_store_failure: deny } }
  - { key: local, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: gcra, on_store_failure: local } }
";

/// A service with one worker, and the results of the calls for its rule `error`.
struct Fixture {
    service: Ratelimitd,
    rls: Rls,
    admitted: u32,
    unanswered: u32,
}

/// The effects of a fault that operators see.
struct Symptoms {
    /// The kind of `ratelimitd_store_errors_total`.
    kind: &'static str,
    /// Part of the log line about the outage.
    logged: &'static str,
}

impl Fixture {
    /// `timeout` is the deadline of a decision.
    async fn start(url: &str, timeout: &str) -> Self {
        Self::start_with(Plan::new(RULES).redis(url).set("store.redis.timeout", timeout)).await
    }

    async fn start_with(plan: Plan) -> Self {
        Self::connect(plan).await.decides_before_the_fault().await
    }

    async fn connect(plan: Plan) -> Self {
        let service = plan.set("server.workers", 1).start();
        let rls = Rls::connect(service.grpc_port()).await;
        Self { service, rls, admitted: 0, unanswered: 0 }
    }

    async fn decides_before_the_fault(mut self) -> Self {
        for _ in 0..10 {
            assert_eq!(self.ask().await, Ok(Code::Ok), "before the fault");
        }
        self
    }

    async fn ask(&mut self) -> Result<Code, Grpc> {
        let asked = request("d", vec![descriptor(&[("error", "x")])]);
        let answer = self.rls.send(asked).await.map(|answer| answer.overall_code());
        match answer {
            Ok(Code::Ok) => self.admitted += 1,
            Ok(_) => {}
            Err(_) => self.unanswered += 1,
        }
        answer.map_err(|error| error.code())
    }

    async fn ask_policy(&mut self, key: &str) -> Code {
        self.rls.send_one("d", &[(key, "x")]).await.0
    }

    fn metric(&self, series: &str) -> u64 {
        let metrics = http::get(self.service.http_port(), "/metrics", &[]).expect("an answer").body;
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in {metrics}")).parse().expect("a whole number")
    }

    fn times_logged(&self, words: &str) -> usize {
        self.service.log().lines().filter(|line| line.contains(words)).count()
    }

    /// Calls until the first decision fails.
    async fn first_failure(&mut self) {
        let felt = wait::until_async(wait::PATIENCE, async || self.ask().await.err()).await;
        assert_eq!(felt, Some(Grpc::Unavailable), "a rule with `error` fails the call");
    }

    /// While the breaker is open, every call is answered by its failure policy at once.
    async fn policies_are_in_force(&mut self, symptoms: &Symptoms) {
        const REFUSED: &str = "ratelimitd_store_errors_total{kind=\"breaker_open\",store=\"redis\"}";
        self.breaker_opens().await;
        let refused_before = self.metric(REFUSED);
        for _ in 0..20 {
            assert_eq!(self.ask().await, Err(Grpc::Unavailable));
            assert_eq!(self.ask_policy("allow").await, Code::Ok);
            assert_eq!(self.ask_policy("deny").await, Code::OverLimit);
            assert_eq!(self.ask_policy("local").await, Code::Ok);
        }
        // A call that the breaker refuses waits for nothing.
        assert_eq!(self.metric(REFUSED) - refused_before, 80, "{}", self.service.log());
        let failed = format!("ratelimitd_store_errors_total{{kind=\"{}\",store=\"redis\"}}", symptoms.kind);
        assert!(self.metric(&failed) > 0, "{failed} {}", self.service.log());
        assert!(self.metric("ratelimitd_redis_breakers_open") > 0);
        for policy in ["error", "allow", "deny", "local"] {
            let series = format!(
                "ratelimitd_policy_decisions_total{{domain=\"d\",policy=\"{policy}\",rule=\"d.{policy}\"}}"
            );
            assert!(self.metric(&series) >= 20, "{series}");
        }
        let outage = "Redis is unavailable; failure policies apply";
        let log = self.service.log_with(outage);
        assert_eq!(self.times_logged(outage), 1);
        let mut began = log.lines().filter(|line| line.contains(outage));
        assert!(began.any(|line| line.contains(symptoms.logged)), "{log}");
    }

    async fn breaker_opens(&mut self) {
        let opened = wait::until_async(wait::PATIENCE, async || {
            for _ in 0..5 {
                assert_eq!(self.ask().await, Err(Grpc::Unavailable));
            }
            (self.metric("ratelimitd_redis_breakers_open") > 0).then_some(())
        });
        assert!(opened.await.is_some(), "the breaker stays closed");
    }

    /// Redis decides again, without a restart of the service.
    async fn service_recovers(&mut self) {
        let started = monotonic();
        let decided = wait::until_async(wait::PATIENCE, async || self.ask().await.ok()).await;
        assert_eq!(decided, Some(Code::Ok), "{}", self.service.log());
        println!("decided again after {:?}", started.elapsed());
        // A call on a connection that is still slow may be late once more.
        let mut in_a_row = 0;
        let goes_on = wait::until_async(wait::PATIENCE, async || {
            in_a_row = if self.ask().await == Ok(Code::Ok) { in_a_row + 1 } else { 0 };
            (in_a_row == 10).then_some(())
        });
        assert!(goes_on.await.is_some(), "{}", self.service.log());
        wait::expect("no breaker is open", || self.metric("ratelimitd_redis_breakers_open") == 0);
        assert_eq!(self.times_logged("Redis is unavailable"), 1, "one line for all of it");
        let logged = wait::until_async(wait::PATIENCE, async || {
            assert_eq!(self.ask().await, Ok(Code::Ok));
            (self.times_logged("Redis is available again") == 1).then_some(())
        });
        assert!(logged.await.is_some(), "the end is not logged: {}", self.service.log());
    }

    /// The units that Redis has charged: those of admitted calls, and each call without an answer at most once.
    async fn charged(&mut self) -> u32 {
        let (code, status) = self.rls.send_one("d", &[("error", "x")]).await;
        assert_eq!(code, Code::Ok);
        self.admitted += 1;
        LIMIT - status.limit_remaining
    }

    /// What surely did not run is not charged.
    async fn nothing_was_charged_but_what_was_admitted(&mut self) {
        assert_eq!(self.charged().await, self.admitted);
    }

    /// What may have run is not charged twice.
    async fn nothing_was_charged_twice(&mut self) {
        let charged = self.charged().await;
        let (least, most) = (self.admitted, self.admitted + self.unanswered);
        assert!(charged >= least && charged <= most, "{charged} charged, {least} to {most} asked");
    }
}
