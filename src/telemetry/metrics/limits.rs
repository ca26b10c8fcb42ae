//! The metrics of every limit: decisions by outcome, answers by failure policy, and hits as envoyproxy/ratelimit counts
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{
    ChargedLimit, DecidedBy, Decision, FailurePolicy, Limit, LimitResult, Plan, Quantity, Rule, RuleSet,
    Verdict,
};
use prometheus::{IntCounter, Registry, Result};

use super::family::counter;
use super::hits::{HitBounds, RuleHits, RuleHitsBinding, RuleHitsTable};
use super::series::{Count, Exposition, SeriesBinding, SeriesTable, labels};

/// The domain and rule label of limits that a request overrides.
const OVERRIDE: &str = "override";

const DECISIONS: &str = "ratelimitd_decisions_total";
const POLICY_DECISIONS: &str = "ratelimitd_policy_decisions_total";

#[derive(Debug)]
pub(super) struct LimitFamilies {
    decisions: SeriesTable<LimitLabels, LimitCounts>,
    hits: RuleHitsTable,
    shadowed: IntCounter,
    near_limit_ppm: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LimitLabels {
    domain: Arc<str>,
    rule: Arc<str>,
}

/// The numbers of the limits with the same labels.
#[derive(Debug, Default)]
struct LimitCounts {
    ok: Count,
    near_limit: Count,
    over_limit: Count,
    /// The limit was skipped, because another limit denied the request.
    unasked: Count,
    shadow: Count,
    error: Count,
    /// In the order of [`FailurePolicy::ALL`].
    by_policy: [PolicyCount; FailurePolicy::ALL.len()],
}

#[derive(Debug, Default)]
struct PolicyCount {
    /// The limit has, or had, this policy.
    is_in_use: AtomicBool,
    answers: Count,
}

/// The counters of every limit of one rule set, looked up once when the rules come into force.
#[derive(Debug)]
pub struct LimitMeters {
    /// By `LimitId`; the last one is for per-request overrides. `None` for unlimited rules, which are not counted.
    each: Vec<Option<Meter>>,
    shadowed: IntCounter,
    near_limit_ppm: u32,
    values_per_rule: usize,
}

#[derive(Debug)]
struct Meter {
    counts: Arc<LimitCounts>,
    policy: FailurePolicy,
    hits: Arc<RuleHits>,
}

impl LimitFamilies {
    pub(super) fn new(registry: &Registry, near_limit_ppm: u32, values_per_rule: usize) -> Result<Self> {
        Ok(Self {
            decisions: SeriesTable::default(),
            hits: RuleHitsTable::new(values_per_rule),
            shadowed: counter(
                registry,
                "ratelimitd_shadowed_requests_total",
                "Requests over their limit that were answered OK because of shadow_mode",
            )?,
            near_limit_ppm,
        })
    }

    pub(super) fn bind(&self, rules: &RuleSet) -> LimitMeters {
        let mut bindings = Bindings { decisions: self.decisions.bind(), hits: self.hits.bind() };
        let mut each = Vec::with_capacity(rules.limits().len() + 1);
        for rule in rules.rules() {
            each.extend(rule.limits.iter().map(|limit| bindings.rule_meter(rule, limit)));
        }
        let overrides = LimitLabels { domain: OVERRIDE.into(), rule: OVERRIDE.into() };
        let hits = bindings.hits.of_overrides();
        each.push(Some(bindings.meter(overrides, rules.defaults().on_store_failure, hits)));
        bindings.decisions.finish();
        bindings.hits.finish();
        LimitMeters {
            each,
            shadowed: self.shadowed.clone(),
            near_limit_ppm: self.near_limit_ppm,
            values_per_rule: self.hits.values_per_rule(),
        }
    }

    /// Writes the series of the limits that have met a request.
    pub(super) fn write(&self, exposition: &mut Exposition<'_>) {
        let limits = self.decisions.in_force();
        let used =
            || limits.iter().filter(|(_, counts)| counts.outcomes().iter().any(|&(_, count)| count > 0));
        exposition.family(
            DECISIONS,
            "counter",
            "Decisions by limit and outcome; unasked: skipped, because another limit denied the request",
        );
        for (limit, counts) in used() {
            for (outcome, count) in counts.outcomes() {
                exposition.sample(DECISIONS, &limit.labels(("outcome", outcome)), count);
            }
        }
        exposition.family(
            POLICY_DECISIONS,
            "counter",
            "Decisions that a limit's failure policy made because the store did not answer",
        );
        for (limit, counts) in used() {
            for (policy, count) in counts.policies() {
                exposition.sample(POLICY_DECISIONS, &limit.labels(("policy", policy)), count);
            }
        }
    }

    pub(super) fn hits(&self) -> &RuleHitsTable {
        &self.hits
    }

    /// The number of requests that were admitted only because of `shadow_mode`.
    pub(super) fn shadowed(&self) -> u64 {
        self.shadowed.get()
    }
}

impl LimitLabels {
    /// In the order of their names, as the registry writes labels.
    fn labels(&self, between: (&str, &str)) -> String {
        labels(&[("domain", &self.domain), between, ("rule", &self.rule)])
    }
}

impl LimitCounts {
    fn outcomes(&self) -> [(&'static str, u64); 6] {
        [
            ("ok", self.ok.get()),
            ("near_limit", self.near_limit.get()),
            ("over_limit", self.over_limit.get()),
            ("unasked", self.unasked.get()),
            ("shadow", self.shadow.get()),
            ("error", self.error.get()),
        ]
    }

    fn policies(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = FailurePolicy::ALL.iter().zip(&self.by_policy);
        let in_use = all.filter(|(_, counted)| counted.is_in_use.load(Ordering::Relaxed));
        in_use.map(|(policy, counted)| (policy.name(), counted.answers.get()))
    }

    fn of_policy(&self, policy: FailurePolicy) -> &PolicyCount {
        let place = FailurePolicy::ALL.iter().position(|other| *other == policy);
        &self.by_policy[place.expect("ALL has every policy")]
    }
}

struct Bindings<'f> {
    decisions: SeriesBinding<'f, LimitLabels, LimitCounts>,
    hits: RuleHitsBinding<'f>,
}

impl Bindings<'_> {
    fn rule_meter(&mut self, rule: &Rule, limit: &Limit) -> Option<Meter> {
        if limit.quantity == Quantity::Unlimited {
            return None;
        }
        let hits = self.hits.of_rule(&rule.path);
        let policy = limit.spec.on_store_failure;
        let policy = if limit.shadow { policy.for_non_binding() } else { policy };
        let labels = LimitLabels { domain: Arc::clone(&rule.domain), rule: Arc::clone(&limit.label) };
        Some(self.meter(labels, policy, hits))
    }

    fn meter(&mut self, labels: LimitLabels, policy: FailurePolicy, hits: Arc<RuleHits>) -> Meter {
        let counts = self.decisions.counts(labels);
        counts.of_policy(policy).is_in_use.store(true, Ordering::Relaxed);
        Meter { counts, policy, hits }
    }
}

impl LimitMeters {
    /// Counts a decision, once for each of its charges.
    pub fn record(&self, decision: &Decision) {
        if decision.shadowed {
            self.shadowed.inc();
        }
        for (charged, result) in decision.charges() {
            let Some(meter) = self.meter(charged.limit) else { continue };
            let bounds = self.bounds(charged.limit);
            match result {
                Some(result) => meter.record(&charged, &result, bounds),
                None => {
                    meter.counts.unasked.add(1);
                    meter.hits.record_undecided(&charged, bounds);
                }
            }
        }
    }

    /// Counts a request that fails because the store did not answer: an error for each of its limits, and an answer by
    /// policy for the limits with the policy `error`, which made the request fail.
    pub fn record_failure(&self, plan: &Plan) {
        for charged in plan.charged() {
            let Some(meter) = self.meter(charged.limit) else { continue };
            meter.counts.error.add(1);
            if meter.policy == FailurePolicy::Error {
                meter.count_policy();
            }
            meter.hits.record_undecided(&charged, self.bounds(charged.limit));
        }
    }

    fn meter(&self, limit: &Limit) -> Option<&Meter> {
        self.each.get(limit.id.0 as usize)?.as_ref()
    }

    fn bounds(&self, limit: &Limit) -> HitBounds {
        // Both factors are below 2^32.
        let near_above = u64::from(limit.spec.capacity()) * u64::from(self.near_limit_ppm) / 1_000_000;
        HitBounds { near_above, values_per_rule: self.values_per_rule }
    }
}

impl Meter {
    fn record(&self, charged: &ChargedLimit<'_>, result: &LimitResult<'_>, bounds: HitBounds) {
        let outcome = result.outcome;
        let is_by_policy = matches!(outcome.decided_by, DecidedBy::Policy(_));
        let used = u64::from(result.limit.spec.capacity()).saturating_sub(outcome.report.remaining);
        let counts = &self.counts;
        let count = match outcome.verdict {
            Verdict::Over if result.is_shadow() => &counts.shadow,
            Verdict::Over => &counts.over_limit,
            // The remaining units of a policy's answer are not those of the limit.
            Verdict::Fits if used > bounds.near_above && !is_by_policy => &counts.near_limit,
            Verdict::Fits => &counts.ok,
        };
        count.add(1);
        if is_by_policy {
            self.count_policy();
        }
        self.hits.record(charged, result, bounds);
    }

    fn count_policy(&self) {
        self.counts.of_policy(self.policy).answers.add(1);
    }
}
