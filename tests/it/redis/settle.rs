//! Settles on a real Redis: the known answers, on a server and on the primaries of a cluster, and a request whose
//! receipt has items of several slots.

use std::sync::Arc;

use ::base::clock::SystemClock;
use ::store::redis::{RedisOptions, ReplayClient, TimedBatch};
use engine::{Attached, Charges, Decision, Descriptor, Enforcement, Outcomes, Request, SettleResult};
use ratelimitd::decide::PauseEvents;
use ratelimitd::decide::limiter::{Limiter, Rulebook};
use ratelimitd::telemetry::metrics::{DeniedKeys, Metrics};
use tokio::runtime::Runtime;

use crate::redis::cluster::cluster_store;
use crate::redis::patient_options;
use crate::rules;
use crate::settle::{ALGORITHMS, check_changed_numbers, check_known_answers, check_one_call, hits};
use crate::support::redis::cluster::Cluster;
use crate::support::redis::{Redis, parsed};

/// A server that decides at given times.
pub(super) struct Timed<'r> {
    runtime: &'r Runtime,
    client: ReplayClient,
}

impl<'r> Timed<'r> {
    pub(super) fn connect(runtime: &'r Runtime, url: &str) -> Self {
        let options = RedisOptions { urls: parsed([url]), ..patient_options(url) };
        let client = runtime.block_on(ReplayClient::connect(&options)).expect("Redis answers");
        Self { runtime, client }
    }

    pub(super) fn decide(&mut self, charges: &Charges, now_us: u64) -> Outcomes {
        let batch = TimedBatch { now_us, requests: &[charges] };
        let decided = self.runtime.block_on(self.client.decide(&[batch]));
        decided.expect("Redis decides").remove(0).remove(0)
    }
}

#[test]
fn redis_gives_the_known_answers() {
    let (redis, runtime) = (Redis::start(), Runtime::new().expect("a runtime"));
    let mut server = Timed::connect(&runtime, &redis.url());
    for algorithm in ALGORITHMS {
        check_known_answers(algorithm, "acme", |charges, now_us| server.decide(charges, now_us));
    }
}

#[test]
fn redis_and_each_primary_of_a_cluster_add_up_the_takes_of_one_call() {
    let (redis, runtime) = (Redis::start(), Runtime::new().expect("a runtime"));
    let mut server = Timed::connect(&runtime, &redis.url());
    check_one_call(|charges, now_us| server.decide(charges, now_us));
    let cluster = Cluster::start();
    let mut primaries: Vec<_> = cluster.urls().iter().map(|url| Timed::connect(&runtime, url)).collect();
    // The counters of one value share a slot.
    check_one_call(|charges, now_us| {
        let primary = cluster.primary_of(charges.keys().next().expect("a counter"));
        primaries[primary].decide(charges, now_us)
    });
}

#[test]
fn a_receipt_gives_back_in_redis_what_its_estimate_took() {
    let (redis, runtime) = (Redis::start(), Runtime::new().expect("a runtime"));
    let mut server = Timed::connect(&runtime, &redis.url());
    check_changed_numbers(|charges, now_us| server.decide(charges, now_us));
}

#[test]
fn each_primary_of_a_cluster_gives_the_known_answers() {
    let (cluster, runtime) = (Cluster::start(), Runtime::new().expect("a runtime"));
    let mut primaries: Vec<_> = cluster.urls().iter().map(|url| Timed::connect(&runtime, url)).collect();
    let mut used = [false; 3];
    for (algorithm, value) in ALGORITHMS.into_iter().flat_map(|algorithm| (0..4).map(move |n| (algorithm, n)))
    {
        check_known_answers(algorithm, &value.to_string(), |charges, now_us| {
            let primary = cluster.primary_of(charges.keys().next().expect("a counter"));
            used[primary] = true;
            primaries[primary].decide(charges, now_us)
        });
    }
    assert_eq!(used, [true; 3]);
}

const RULES: &str = "
domain: d
descriptors:
  - key: tenant
    rate_limit: { unit: year, requests_per_unit: 1000, algorithm: fixed_window, settle: true }
  - key: model
    rate_limit: { unit: year, requests_per_unit: 1000, algorithm: sliding_window, settle: true }
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000, algorithm: token_bucket, refill: interval, settle: true }
";

#[tokio::test]
async fn each_settle_of_a_request_over_several_slots_is_booked_in_its_slot() {
    let cluster = Cluster::start();
    let metrics = Metrics::new(800_000).expect("the metrics have different names");
    let limiter = Limiter {
        rulebook: Arc::new(Rulebook::new(rules::rules(RULES), metrics)),
        store: cluster_store(&cluster),
        enforcement: Enforcement::Enforce,
        clock: Arc::new(SystemClock),
        denied: DeniedKeys::default(),
        ledger: ratelimitd::ledger::WorkerLedger::default(),
        notices: ratelimitd::notify::WorkerNotices::default(),
        pauses: PauseEvents::default(),
    };
    let decide = async |descriptors: Vec<Descriptor>| {
        let request = Request { descriptors, ..rules::request("d", &[]) };
        limiter.decide(&request, Decision::clone).await.expect("the cluster decides")
    };
    let all = |hits_of: [u64; 3]| {
        let entries = ["tenant=a", "model=b", "user=c"];
        entries.into_iter().zip(hits_of).map(|(entries, units)| hits(entries, units)).collect::<Vec<_>>()
    };
    let remaining = async || {
        let decision = decide(all([0; 3])).await;
        decision.limit_results().map(|result| result.outcome.report.remaining).collect::<Vec<_>>()
    };
    let estimated = decide(all([500; 3])).await;
    let receipt = estimated.receipt(|| 1).expect("a receipt").to_string();
    assert_eq!(receipt.split('.').count(), 2 + 3, "{receipt}");
    let returned = |descriptor| Descriptor {
        attached: Some(Box::new(Attached::Receipt(receipt.parse()))),
        ..descriptor
    };
    let settled = decide(all([100, 500, 1_200]).into_iter().map(returned).collect()).await;
    let results: Vec<_> = (0..3).filter_map(|index| Some(settled.settle(index)?.result)).collect();
    assert_eq!(results, [SettleResult::Returned, SettleResult::Charged, SettleResult::Charged]);
    assert_eq!(remaining().await, [900, 500, 0]);
    // A second settle of one descriptor alone, with other descriptors that are denied.
    let (over, settle) = (hits("model=b", 501), returned(hits("tenant=a", 0)));
    let decision = decide(vec![over, settle]).await;
    assert_eq!(decision.overall, engine::Code::OverLimit);
    assert_eq!(remaining().await, [1_000, 500, 0]);
}
