//! From a rule file to a decision, on the memory store with a manual clock: the answers of each kind of rule.

use std::io::Write as _;
use std::sync::Arc;

use ::base::clock::{Clock, ManualClock};
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{
    Algorithm, Applied, Caller, Code, Decision, Defaults, Descriptor, Enforcement, Entry, LimitOverride,
    Period, Request, RetryAfter, Unit,
};
use ratelimitd::decide::PauseEvents;
use ratelimitd::decide::limiter::{Limiter, Rulebook};
use ratelimitd::telemetry::metrics::{DeniedKeys, Metrics};
use rules::{LoadOptions, load};

use super::REFERENCE;

/// A minute boundary.
pub(super) const T0: u64 = 1_700_000_040_000_000;

pub(super) struct Fixture {
    pub(super) limiter: Limiter<Arc<MemoryStore<Arc<ManualClock>>>>,
    clock: Arc<ManualClock>,
}

impl Fixture {
    pub(super) fn new(rules: &str) -> Self {
        Self::by_default(rules, Defaults::ENVOY_RATELIMIT)
    }

    fn in_shadow_mode(rules: &str) -> Self {
        let mut fixture = Self::new(rules);
        fixture.limiter.enforcement = Enforcement::Shadow;
        fixture
    }

    pub(super) fn by_default(rules: &str, defaults: Defaults) -> Self {
        let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a temporary file");
        file.write_all(rules.as_bytes()).expect("room for the rules");
        let options = LoadOptions { defaults, ..REFERENCE };
        let loaded = load(&[file.path().to_owned()], options).unwrap_or_else(|problems| panic!("{problems}"));
        let metrics = Metrics::new(800_000).expect("the metrics have different names");
        let clock = Arc::new(ManualClock::at(T0));
        let store = Arc::new(MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock)));
        let rulebook = Arc::new(Rulebook::new(loaded.rules, metrics));
        Self {
            limiter: Limiter {
                rulebook,
                store,
                enforcement: Enforcement::Enforce,
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                denied: DeniedKeys::default(),
                ledger: ratelimitd::ledger::WorkerLedger::default(),
                notices: ratelimitd::notify::WorkerNotices::default(),
                pauses: PauseEvents::default(),
            },
            clock,
        }
    }

    pub(super) async fn decide(&self, descriptors: &[Descriptor]) -> Decision {
        let request = Request {
            domain: "d".to_owned(),
            hits_addend: 0,
            descriptors: descriptors.to_vec(),
            caller: Caller::default(),
        };
        self.limiter.decide(&request, Decision::clone).await.expect("memory always answers")
    }
}

pub(super) fn descriptor(entries: &[(&str, &str)]) -> Descriptor {
    let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
    Descriptor { entries: entries.iter().map(entry).collect(), ..Descriptor::default() }
}

pub(super) fn hits(entries: &[(&str, &str)], hits: u64) -> Descriptor {
    Descriptor { hits: Some(hits), ..descriptor(entries) }
}

/// The decision as text: the overall code, `O` (OK) or `X` (over limit), then one status per descriptor: its code and
/// the remaining units, `-` if no limit applies, `*` if it is unlimited.
fn summary(decision: &Decision) -> String {
    let code = |code| if code == Code::Ok { "O" } else { "X" };
    let status = |status: engine::Status<'_>| match status.applied {
        Applied::Nothing => "-".to_owned(),
        Applied::Unlimited(_) => "*".to_owned(),
        Applied::Paused(_, length_us) => format!("paused {length_us}"),
        Applied::Limited(limited) => format!("{}{}", code(status.code), limited.outcome.report.remaining),
    };
    let statuses: Vec<_> = decision.statuses().map(status).collect();
    format!("{} {}", code(decision.overall), statuses.join(" "))
}

pub(super) async fn expect(fixture: &Fixture, rows: &[(&[Descriptor], &str)]) {
    for (number, (descriptors, expected)) in rows.iter().enumerate() {
        assert_eq!(summary(&fixture.decide(descriptors).await), *expected, "row {number}");
    }
}

#[tokio::test]
async fn a_rule_without_algorithm_counts_as_envoyproxy_ratelimit_does() {
    let fixture =
        Fixture::new("domain: d\ndescriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 3}}]");
    let (k, other) = (descriptor(&[("k", "a")]), descriptor(&[("k", "b")]));
    expect(
        &fixture,
        &[
            (std::slice::from_ref(&k), "O O2"),
            (&[k.clone(), k.clone()], "O O1 O0"), // two descriptors, one counter: one after the other
            (std::slice::from_ref(&other), "O O2"), // each value has its own counter
            (&[other.clone(), k.clone()], "X O1 X0"), // denied, and recorded nevertheless
            (&[hits(&[("k", "b")], 0)], "O O1"),  // a peek
            (&[hits(&[("k", "a")], 0)], "X X0"),  // a peek where nothing remains
            (&[descriptor(&[("unknown", "x")])], "O -"),
        ],
    )
    .await;
    fixture.clock.set(T0 + 60_000_000);
    expect(&fixture, &[(&[k], "O O2")]).await;
}

#[tokio::test]
async fn prepaid_rules_are_charged_together_or_not_at_all() {
    let fixture = Fixture::new(
        "domain: d
descriptors:
  - { key: wide, rate_limit: { unit: hour, requests_per_unit: 10, algorithm: gcra } }
  - { key: narrow, rate_limit: { unit: hour, requests_per_unit: 2, algorithm: sliding_log } }
  - { key: meter, rate_limit: { unit: hour, requests_per_unit: 10 } }",
    );
    let all = [descriptor(&[("wide", "")]), descriptor(&[("narrow", "")]), descriptor(&[("meter", "")])];
    expect(
        &fixture,
        &[
            (&all, "O O9 O1 O9"),
            (&all, "O O8 O0 O8"),
            (&all, "X O8 X0 O7"), // only the postpaid limit is charged
            (&all[..1], "O O7"),
        ],
    )
    .await;
}

#[tokio::test]
async fn several_limits_on_one_descriptor_report_the_binding_limit() {
    let fixture = Fixture::new(
        "domain: d
descriptors:
  - key: api
    rate_limits:
      - { unit: second, requests_per_unit: 3, algorithm: sliding_log, name: per_second }
      - { unit: hour, requests_per_unit: 5, algorithm: sliding_log, name: per_hour }",
    );
    let api = [descriptor(&[("api", "x")])];
    expect(&fixture, &[(&api, "O O2"), (&api, "O O1"), (&api, "O O0"), (&api, "X X0")]).await;
    fixture.clock.set(T0 + 1_000_000);
    expect(&fixture, &[(&api, "O O1"), (&api, "O O0"), (&api, "X X0")]).await;
    let denied = fixture.decide(&api).await;
    let statuses: Vec<_> = denied.statuses().collect();
    let Applied::Limited(limited) = statuses[0].applied else { panic!("a limit applies") };
    assert_eq!(limited.limit.label.as_ref(), "per_hour", "the limit with the longest wait");
    assert_eq!(denied.retry_after(), RetryAfter::In(3_599_000_000));
}

#[tokio::test]
async fn shadow_rules_count_and_never_deny() {
    let fixture = Fixture::new(
        "domain: d
descriptors:
  - { key: shadow, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1, algorithm: gcra } }
  - { key: enforced, rate_limit: { unit: hour, requests_per_unit: 3, algorithm: gcra } }",
    );
    let both = [descriptor(&[("shadow", "")]), descriptor(&[("enforced", "")])];
    expect(&fixture, &[(&both, "O O0 O2"), (&both, "O O0 O1"), (&both, "O O0 O0"), (&both, "X O0 X0")]).await;
}

#[tokio::test]
async fn quota_rules_deny_only_together() {
    let fixture = Fixture::new(
        "domain: d
descriptors:
  - { key: own, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 1, algorithm: gcra } }
  - { key: shared, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 2, algorithm: gcra } }",
    );
    let both = [descriptor(&[("own", "")]), descriptor(&[("shared", "")])];
    expect(&fixture, &[(&both, "O O0 O1"), (&both, "O X0 O0"), (&both, "X X0 X0")]).await;
}

#[tokio::test]
async fn a_replaced_limit_is_not_charged_and_still_replaces_other_limits() {
    let fixture = Fixture::new(
        "domain: d
descriptors:
  - { key: a, rate_limit: { unit: hour, requests_per_unit: 5, name: first } }
  - { key: b, rate_limit: { unit: hour, requests_per_unit: 5, name: second, replaces: [{ name: first }] } }
  - { key: c, rate_limit: { unlimited: true, name: third, replaces: [{ name: second }] } }",
    );
    let [a, b, c] = ["a", "b", "c"].map(|key| descriptor(&[(key, "")]));
    expect(
        &fixture,
        &[
            (&[a.clone(), b.clone(), c.clone()], "O - - *"),
            (&[a.clone(), b.clone()], "O - O4"),
            (&[a], "O O4"),
        ],
    )
    .await;
}

#[tokio::test]
async fn an_override_has_its_own_counter() {
    let fixture =
        Fixture::new("domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 9}}]");
    let own = LimitOverride { requests_per_unit: 2, period: Period::one(Unit::Hour) };
    let sent = |key: &str| Descriptor { limit: Some(own), ..descriptor(&[(key, "x")]) };
    expect(
        &fixture,
        &[
            (&[sent("k")], "O O1"),
            (&[descriptor(&[("k", "x")])], "O O8"),
            (&[sent("k")], "O O0"),
            (&[sent("k")], "X X0"),
            (&[sent("anything")], "O O1"), // entries need not match
        ],
    )
    .await;
}

#[tokio::test]
async fn a_refund_returns_units_up_to_the_limit() {
    let fixture = Fixture::new(
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 5, algorithm: gcra}}]",
    );
    let refund = |units| Descriptor { is_refund: true, ..hits(&[("k", "")], units) };
    expect(&fixture, &[(&[hits(&[("k", "")], 5)], "O O0"), (&[refund(2)], "O O2"), (&[refund(99)], "O O5")])
        .await;
}

#[tokio::test]
async fn a_limit_of_0_denies_every_request() {
    let node = |algorithm: Algorithm| {
        let limit = format!("{{ unit: hour, requests_per_unit: 0, algorithm: {algorithm} }}");
        format!("  - {{ key: {algorithm}, rate_limit: {limit} }}\n")
    };
    let nodes: String = Algorithm::ALL.iter().copied().map(node).collect();
    let default = "  - { key: default, rate_limit: { unit: hour, requests_per_unit: 0 } }\n";
    let fixture = Fixture::new(&format!("domain: d\ndescriptors:\n{nodes}{default}"));
    for key in Algorithm::ALL.iter().map(|algorithm| algorithm.into_str()).chain(["default"]) {
        let blocked = fixture.decide(&[descriptor(&[(key, "")])]).await;
        assert_eq!(summary(&blocked), "X X0", "{key}");
        assert_eq!(blocked.retry_after(), RetryAfter::Never, "{key}");
        let until_reset: Vec<_> =
            blocked.limit_results().map(|result| result.outcome.report.until_reset_us).collect();
        assert_eq!(until_reset, [3_600_000_000 - T0 % 3_600_000_000], "{key}: the end of the hour");
        assert_eq!(summary(&fixture.decide(&[hits(&[(key, "")], 0)]).await), "X X0", "{key}: a peek");
    }
    assert_eq!(fixture.limiter.store.stats().keys, 0);
}

#[tokio::test]
async fn global_shadow_mode_answers_ok_with_the_statuses_of_the_limits() {
    let rules =
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: gcra}}]";
    let fixture = Fixture::in_shadow_mode(rules);
    let k = [descriptor(&[("k", "")])];
    expect(&fixture, &[(&k, "O O0"), (&k, "O X0")]).await;
    assert!(fixture.decide(&k).await.shadowed);
}

#[tokio::test]
async fn an_unknown_domain_has_no_limits() {
    let fixture = Fixture::new("domain: other\ndescriptors: []");
    expect(&fixture, &[(&[descriptor(&[("k", "")]), descriptor(&[("l", "")])], "O - -")]).await;
}

#[tokio::test]
async fn the_retry_time_of_a_denied_request_includes_its_recorded_postpaid_charge() {
    let fixture = Fixture::new(
        "domain: d\ndescriptors:\n  \
         - {key: a, rate_limit: {unit: second, requests_per_unit: 1, algorithm: gcra}}\n  \
         - {key: b, rate_limit: {unit: hour, requests_per_unit: 2}}",
    );
    let both = [descriptor(&[("a", "x")]), descriptor(&[("b", "x")])];
    expect(&fixture, &[(&both, "O O0 O1")]).await;
    let until_the_hour = 3_600_000_000 - T0 % 3_600_000_000;
    let denied = fixture.decide(&both).await;
    assert_eq!(summary(&denied), "X X0 O0");
    // Limit a admits again after a second, but the denied request used up limit b.
    assert_eq!(denied.retry_after(), RetryAfter::In(until_the_hour));
    fixture.clock.set(T0 + until_the_hour - 1);
    assert_eq!(fixture.decide(&both).await.overall, Code::OverLimit);
    fixture.clock.set(T0 + until_the_hour);
    assert_eq!(fixture.decide(&both).await.overall, Code::Ok);
}

#[tokio::test]
async fn a_request_denied_by_another_limit_takes_no_place_in_a_queue() {
    let fixture = Fixture::new(
        "domain: d\ndescriptors:\n  \
         - {key: a, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: gcra}}\n  \
         - {key: q, rate_limit: {unit: second, requests_per_unit: 1, burst: 5, algorithm: leaky_bucket, mode: queue}}",
    );
    let both = [descriptor(&[("a", "x")]), descriptor(&[("q", "x")])];
    let delays = |decision: &Decision| -> Vec<u64> {
        decision.limit_results().map(|limited| limited.outcome.report.delay_us).collect()
    };
    assert_eq!(delays(&fixture.decide(&both[1..]).await), [0]);
    assert_eq!(delays(&fixture.decide(&both).await), [0, 1_000_000]);
    assert_eq!(delays(&fixture.decide(&both).await), [0, 0]);
    assert_eq!(delays(&fixture.decide(&both[1..]).await), [2_000_000]);
}

#[test]
fn a_tier_has_the_range_of_its_limit() {
    let rules = |units: u64| {
        let text = format!(
            "domain: d\ndescriptors:\n  - key: k\n    rate_limit:\n      {{ unit: month, requests_per_unit: 1, \
             algorithm: fixed_window, tiers: {{ all: {{ requests_per_unit: {units} }} }} }}\n"
        );
        super::load_text(&text)
    };
    let loaded = rules(1 << 52).expect("the largest number");
    let tier = loaded.rules.limits()[0].tier("all").expect("the tier");
    assert_eq!(tier.limit.spec.requests_per_unit, 1 << 52);
    assert!(rules((1 << 52) + 1).is_err());
}
