mod labels;

use std::time::Duration;

use base::clock::{ManualClock, SystemClock};
use engine::{
    Algorithm, Caller, Charging, Code, DecidedBy, Decision, Defaults, Descriptor, DomainSpec, Enforcement,
    Entry, FailurePolicy, Limit, LimitSpec, NodeSpec, Outcomes, Period, Plan, Request, RuleSet, RuleSpec,
    Store, StoreError, Unit, ValueHashing,
};
use store::breaker::BreakerState;
use store::memory::{MemoryOptions, MemoryStats, MemoryStore};
use store::observer::{BreakerTransition, Observer as _};

use super::*;
use crate::decide::PauseEvents;
use crate::decide::limiter::{Limiter, Rulebook};

fn metrics() -> Metrics {
    Metrics::new(800_000).expect("names are unique")
}

fn limit(requests_per_unit: u64, name: Option<&str>) -> LimitSpec {
    LimitSpec {
        charging: Charging::Postpaid,
        on_store_failure: FailurePolicy::Deny,
        name: name.map(str::to_owned),
        ..LimitSpec::new(Algorithm::FixedWindow, requests_per_unit, Period::one(Unit::Minute))
    }
}

/// One node per key, each with one limit.
fn rules(nodes: &[(&str, LimitSpec, bool)]) -> RuleSet {
    let descriptors = nodes.iter().map(|(key, limit, shadow)| NodeSpec {
        key: (*key).to_owned(),
        rule: Some(RuleSpec {
            limits: vec![Limit::new(limit.clone()).expect("a valid limit")],
            shadow: *shadow,
            ..RuleSpec::default()
        }),
        ..NodeSpec::default()
    });
    let spec =
        DomainSpec { domain: "edge".to_owned(), descriptors: descriptors.collect(), ..DomainSpec::default() };
    RuleSet::compile(&[spec], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("the rules are valid")
}

fn request(key: &str, hits: u32) -> Request {
    let entry = Entry { key: key.to_owned(), value: "v".to_owned() };
    let descriptor = Descriptor { entries: vec![entry], ..Descriptor::default() };
    Request {
        domain: "edge".to_owned(),
        hits_addend: hits,
        descriptors: vec![descriptor],
        caller: Caller::default(),
    }
}

fn limiter<S>(metrics: &Metrics, rules: RuleSet, store: S) -> Limiter<S> {
    let rulebook = Arc::new(Rulebook::new(rules, metrics.clone()));
    Limiter {
        rulebook,
        store,
        enforcement: Enforcement::Enforce,
        clock: Arc::new(SystemClock),
        denied: DeniedKeys::default(),
        ledger: crate::ledger::WorkerLedger::default(),
        notices: crate::notify::WorkerNotices::default(),
        pauses: PauseEvents::default(),
    }
}

fn memory() -> MemoryStore<ManualClock> {
    MemoryStore::new(MemoryOptions::default(), ManualClock::at(1_700_000_000_000_000))
}

/// A series' value, named as in the exposition format.
fn value(metrics: &Metrics, series: &str) -> Option<u64> {
    let text = metrics.render().expect("metrics can be encoded");
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ').map(str::to_owned));
    line.map(|value| value.parse().expect("a whole number"))
}

fn outcome(metrics: &Metrics, rule: &str, outcome: &str) -> Option<u64> {
    let labels = format!(r#"{{domain="edge",outcome="{outcome}",rule="{rule}"}}"#);
    value(metrics, &format!("ratelimitd_decisions_total{labels}"))
}

/// A missing series of hits counts as 0.
fn hits(metrics: &Metrics, key1: &str) -> [u64; 5] {
    ["total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"].map(|name| {
        let labels = format!(r#"{{domain="edge",key1="{key1}"}}"#);
        value(metrics, &format!("ratelimit_service_rate_limit_{name}{labels}")).unwrap_or(0)
    })
}

#[tokio::test]
async fn each_decision_has_one_outcome() {
    let metrics = metrics();
    let set = rules(&[("tenant", limit(5, Some("per tenant")), false), ("trial", limit(1, None), true)]);
    let limiter = limiter(&metrics, set, memory());
    for _ in 0..7 {
        limiter.decide(&request("tenant", 1), |_| ()).await.expect("memory answers");
        limiter.decide(&request("trial", 1), |_| ()).await.expect("memory answers");
    }
    // Near above 4 of 5.
    let counted = ["ok", "near_limit", "over_limit", "shadow", "error"];
    assert_eq!(counted.map(|name| outcome(&metrics, "per tenant", name)), [4, 1, 2, 0, 0].map(Some));
    assert_eq!(counted.map(|name| outcome(&metrics, "edge.trial", name)), [0, 1, 0, 6, 0].map(Some));
    assert_eq!(hits(&metrics, "tenant"), [7, 2, 1, 5, 0]);
    assert_eq!(hits(&metrics, "trial"), [7, 6, 1, 1, 6]);
}

#[tokio::test]
async fn hits_that_cross_the_limit_are_split_as_envoyproxy_ratelimit_splits_them() {
    let metrics = metrics();
    let limiter = limiter(&metrics, rules(&[("tenant", limit(20, None), false)]), memory());
    // 15 of 20 fit; 7 more make 22.
    limiter.decide(&request("tenant", 15), |_| ()).await.expect("memory answers");
    assert_eq!(hits(&metrics, "tenant"), [15, 0, 0, 15, 0]);
    limiter.decide(&request("tenant", 7), |_| ()).await.expect("memory answers");
    assert_eq!(hits(&metrics, "tenant"), [22, 2, 4, 15, 0]);
    // Already over: all of it is over.
    limiter.decide(&request("tenant", 3), |_| ()).await.expect("memory answers");
    assert_eq!(hits(&metrics, "tenant"), [25, 5, 4, 15, 0]);
}

#[tokio::test]
async fn prepaid_hits_that_would_cross_the_limit_are_split_alike() {
    let metrics = metrics();
    let prepaid = LimitSpec { charging: Charging::Prepaid, ..limit(20, None) };
    let limiter = limiter(&metrics, rules(&[("tenant", prepaid, false)]), memory());
    for (cost, expected) in [(15, [15, 0, 0, 15, 0]), (7, [22, 2, 4, 15, 0]), (5, [27, 2, 8, 20, 0])] {
        limiter.decide(&request("tenant", cost), |_| ()).await.expect("memory answers");
        assert_eq!(hits(&metrics, "tenant"), expected, "{cost}");
    }
}

#[tokio::test]
async fn a_request_without_an_answer_is_an_error_of_each_of_its_limits() {
    struct FailingStore;
    impl Store for FailingStore {
        async fn decide(&self, _: &engine::Charges) -> std::result::Result<Outcomes, StoreError> {
            Err(StoreError::Timeout)
        }
    }
    let metrics = metrics();
    let failing = LimitSpec { on_store_failure: FailurePolicy::Error, ..limit(5, None) };
    let limiter = limiter(&metrics, rules(&[("tenant", failing, false)]), FailingStore);
    assert!(limiter.decide(&request("tenant", 1), |_| ()).await.is_err());
    assert_eq!(outcome(&metrics, "edge.tenant", "error"), Some(1));
    let by_policy = r#"ratelimitd_policy_decisions_total{domain="edge",policy="error",rule="edge.tenant"}"#;
    assert_eq!(value(&metrics, by_policy), Some(1));
    assert_eq!(hits(&metrics, "tenant"), [1, 0, 0, 0, 0], "hits are counted before the store is asked");
    let elsewhere = Request { domain: "nowhere".to_owned(), ..request("tenant", 1) };
    assert!(limiter.decide(&elsewhere, |_| ()).await.is_ok());
    assert_eq!(value(&metrics, "ratelimitd_unknown_domain_total"), Some(1));
}

#[tokio::test]
async fn shadow_mode_counts_the_hits_over_the_limit_and_not_the_whole_call() {
    let metrics = metrics();
    let limiter = limiter(&metrics, rules(&[("trial", limit(4, None), true)]), memory());
    limiter.decide(&request("trial", 3), |_| ()).await.expect("memory answers");
    limiter.decide(&request("trial", 4), |_| ()).await.expect("memory answers");
    assert_eq!(hits(&metrics, "trial"), [7, 3, 1, 3, 3]);
}

#[test]
fn answers_of_a_failure_policy_have_their_own_counters() {
    let metrics = metrics();
    let set = rules(&[("tenant", limit(5, None), false)]);
    let meters = metrics.limit_meters(&set);
    let plan = Plan::new(&set, &request("tenant", 1), 0).expect("the request is valid");
    let mut outcomes = memory().decide_at(&plan.charges, 1_700_000_000_000_000);
    let denied = &mut outcomes.by_charge[0];
    denied.decided_by = DecidedBy::Policy(FailurePolicy::Deny);
    denied.verdict = engine::Verdict::Over;
    let decision = Decision::merge(plan, outcomes, Enforcement::Shadow);
    let (ledger, notices) = Default::default();
    meters.record(&decision, &DeniedKeys::default(), (&ledger, &notices));
    assert_eq!(decision.overall, Code::Ok);
    assert_eq!(outcome(&metrics, "edge.tenant", "over_limit"), Some(1));
    let by_policy = r#"ratelimitd_policy_decisions_total{domain="edge",policy="deny",rule="edge.tenant"}"#;
    assert_eq!(value(&metrics, by_policy), Some(1));
    assert_eq!(value(&metrics, "ratelimitd_shadowed_requests_total"), Some(1));
}

#[tokio::test]
async fn series_exist_from_the_first_request_until_the_rule_is_gone() {
    let metrics = metrics();
    let unlimited = LimitSpec { unlimited: true, ..limit(0, None) };
    let first = rules(&[
        ("stays", limit(5, None), false),
        ("goes", limit(5, None), false),
        ("free", unlimited, false),
    ]);
    let limiter = limiter(&metrics, first, memory());
    limiter.decide(&request("stays", 1), |_| ()).await.expect("memory answers");
    limiter.decide(&request("free", 1), |_| ()).await.expect("memory answers");
    assert_eq!(outcome(&metrics, "edge.goes", "ok"), None, "no request has met it");
    assert_eq!(outcome(&metrics, "edge.free", "ok"), None, "an unlimited rule is not counted");
    assert_eq!(value(&metrics, "ratelimitd_unlimited_requests_total"), Some(0), "nor is it a missing rule");
    // So that the first denial and the first answer by policy are an increase.
    assert_eq!(outcome(&metrics, "edge.stays", "over_limit"), Some(0));
    let by_policy = r#"ratelimitd_policy_decisions_total{domain="edge",policy="deny",rule="edge.stays"}"#;
    assert_eq!(value(&metrics, by_policy), Some(0));

    limiter.decide(&request("goes", 1), |_| ()).await.expect("memory answers");
    assert_eq!(outcome(&metrics, "edge.goes", "ok"), Some(1));
    let old = limiter
        .rulebook
        .replace(rules(&[("stays", limit(9, None), false), ("comes", limit(5, None), false)]));
    assert_eq!(outcome(&metrics, "edge.stays", "ok"), Some(1), "a counter outlives a change of its rule");
    assert_eq!(hits(&metrics, "stays"), [1, 0, 0, 1, 0]);
    assert!(!metrics.render().expect("metrics can be encoded").contains("goes"));
    limiter.decide(&request("comes", 1), |_| ()).await.expect("memory answers");
    assert_eq!(outcome(&metrics, "edge.comes", "ok"), Some(1));
    old.free_when_unused();
}

#[tokio::test]
async fn limits_with_the_same_labels_have_one_series() {
    let metrics = metrics();
    let first = rules(&[("a", limit(5, Some("same")), false), ("b", limit(1, Some("same")), true)]);
    let limiter = limiter(&metrics, first, memory());
    for key in ["a", "b", "b"] {
        limiter.decide(&request(key, 1), |_| ()).await.expect("memory answers");
    }
    let counted = ["ok", "near_limit", "shadow"].map(|name| outcome(&metrics, "same", name));
    assert_eq!(counted, [1, 1, 1].map(Some));
    let text = metrics.render().expect("metrics can be encoded");
    let mut series: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let written = series.len();
    series.sort_unstable_by_key(|line| line.split(' ').next());
    series.dedup_by_key(|line| line.split(' ').next());
    assert_eq!(series.len(), written, "{text}");
}

#[test]
fn limits_that_no_request_has_met_add_nothing_to_a_scrape() {
    let metrics = metrics();
    // The process's memory may change meanwhile.
    let text = || {
        let text = metrics.render().expect("metrics can be encoded");
        text.lines().filter(|line| !line.starts_with("process_")).collect::<Vec<_>>().join("\n")
    };
    let before = text();
    let keys: Vec<_> = (0..10_000).map(|n| format!("key-{n}")).collect();
    let nodes: Vec<_> = keys.iter().map(|key| (key.as_str(), limit(5, None), false)).collect();
    let _meters = metrics.limit_meters(&rules(&nodes));
    assert_eq!(text(), before);
}

#[test]
fn a_request_is_timed_until_its_timer_is_dropped() {
    let metrics = metrics();
    let (grpc, http) = (metrics.requests(Transport::Grpc), metrics.requests(Transport::Http));
    let count = |series| value(&metrics, series).expect("the series exists");
    drop(grpc.start());
    let running = grpc.start();
    drop(http.start());
    assert_eq!(count(r#"ratelimitd_request_duration_seconds_count{transport="grpc"}"#), 1);
    drop(running);
    assert_eq!(count(r#"ratelimitd_request_duration_seconds_count{transport="grpc"}"#), 2);
    assert_eq!(count(r#"ratelimitd_request_duration_seconds_count{transport="http"}"#), 1);
    // The metrics of envoyproxy/ratelimit count only gRPC.
    assert_eq!(count(r#"ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"}"#), 2);
    assert_eq!(count(r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}"#), 2);
}

#[test]
fn errors_are_counted_under_both_names() {
    let metrics = metrics();
    metrics.requests(Transport::Grpc).failed(RequestFailure::Invalid);
    metrics.requests(Transport::Http).failed(RequestFailure::Invalid);
    metrics.requests(Transport::Http).failed(RequestFailure::Store);
    let cases = [
        (r#"ratelimitd_request_errors_total{kind="invalid",transport="grpc"}"#, 1),
        (r#"ratelimitd_request_errors_total{kind="store",transport="grpc"}"#, 0),
        (r#"ratelimitd_request_errors_total{kind="store",transport="http"}"#, 1),
        (r#"ratelimit_service_should_rate_limit_error{err_type="service_error"}"#, 2),
        (r#"ratelimit_service_should_rate_limit_error{err_type="redis_error"}"#, 1),
    ];
    for (series, count) in cases {
        assert_eq!(value(&metrics, series), Some(count), "{series}");
    }
}

#[test]
fn stores_report_durations_errors_batches_and_keys() {
    let stats: PulledStats<MemoryStats> = Arc::new(|| MemoryStats { keys: 7, evictions: 4 });
    let parts = MeteredParts { memory: Some(stats), ..MeteredParts::default() };
    let options = MetricsOptions { parts, ..MetricsOptions::default() };
    let metrics = Metrics::with_options(options).expect("names are unique");
    let store = metrics.families.stores.meter("redis");
    store.decided(Duration::from_micros(700), Ok(()));
    store.decided(Duration::from_millis(15), Err(&StoreError::Timeout));
    store.decided(Duration::ZERO, Err(&StoreError::Policy(Box::new(StoreError::Overloaded))));
    store.decided(Duration::ZERO, Err(&StoreError::Open(Arc::new(StoreError::Timeout))));
    let (first, second) = (metrics.families.stores.batches(None), metrics.families.stores.batches(None));
    let turn = |from, to| BreakerTransition { node: "", from, to, cause: None };
    first.breaker(turn(BreakerState::Closed, BreakerState::Open));
    first.breaker(turn(BreakerState::Open, BreakerState::HalfOpen));
    second.breaker(turn(BreakerState::Closed, BreakerState::Open));
    second.breaker(turn(BreakerState::Open, BreakerState::HalfOpen));
    second.breaker(turn(BreakerState::HalfOpen, BreakerState::Closed));
    metrics.families.stores.set_clock_difference(4_000_000);
    first.queue_depth(40);
    first.batch(128);
    second.queue_depth(2);
    second.batch(3);
    let cases = [
        (r#"ratelimitd_store_duration_seconds_bucket{store="redis",le="0.0005"}"#, 2),
        (r#"ratelimitd_store_duration_seconds_bucket{store="redis",le="0.001"}"#, 3),
        (r#"ratelimitd_store_duration_seconds_count{store="redis"}"#, 4),
        (r#"ratelimitd_store_errors_total{kind="breaker_open",store="redis"}"#, 1),
        ("ratelimitd_redis_breakers_open", 1),
        (r#"ratelimitd_redis_breaker_transitions_total{state="open"}"#, 2),
        (r#"ratelimitd_redis_breaker_transitions_total{state="half_open"}"#, 2),
        (r#"ratelimitd_redis_breaker_transitions_total{state="closed"}"#, 1),
        (r#"ratelimitd_store_errors_total{kind="timeout",store="redis"}"#, 1),
        (r#"ratelimitd_store_errors_total{kind="overloaded",store="redis"}"#, 1),
        (r#"ratelimitd_store_errors_total{kind="unreachable",store="redis"}"#, 0),
        (r#"ratelimitd_redis_batch_size_bucket{le="4"}"#, 1),
        (r#"ratelimitd_redis_batch_size_bucket{le="128"}"#, 2),
        ("ratelimitd_redis_queue_depth", 42),
        ("ratelimitd_redis_clock_difference_seconds", 4),
        ("ratelimitd_memory_keys", 7),
        ("ratelimitd_memory_evictions_total", 4),
    ];
    for (series, count) in cases {
        assert_eq!(value(&metrics, series), Some(count), "{series}");
    }
    drop(first);
    assert_eq!(value(&metrics, "ratelimitd_redis_queue_depth"), Some(2));
}

#[test]
fn loads_of_rules_are_counted() {
    let metrics = metrics();
    let loaded = Loaded { rules: 12, files: 2, domains: 3, now_us: 1_700_000_000_999_999 };
    metrics.families.rules.loaded(Loaded { rules: 0, ..loaded }, "e3b0c44298fc");
    metrics.families.rules.loaded(loaded, "9a8acca1b6c6");
    metrics.families.rules.failed();
    metrics.families.rules.failed();
    let cases = [
        ("ratelimitd_rules", 12),
        ("ratelimitd_rule_files", 2),
        ("ratelimitd_rule_domains", 3),
        ("ratelimitd_rules_loaded_timestamp_seconds", 1_700_000_000),
        (r#"ratelimitd_rules_digest_info{digest="9a8acca1b6c6"}"#, 1),
        (r#"ratelimitd_rule_loads_total{result="success"}"#, 2),
        (r#"ratelimitd_rule_loads_total{result="failure"}"#, 2),
        ("ratelimit_service_config_load_success", 2),
        ("ratelimit_service_config_load_error", 2),
        (concat!("ratelimitd_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1),
    ];
    for (series, count) in cases {
        assert_eq!(value(&metrics, series), Some(count), "{series}");
    }
    let before = r#"ratelimitd_rules_digest_info{digest="e3b0c44298fc"}"#;
    assert_eq!(value(&metrics, before), None, "only the active rules");
}
