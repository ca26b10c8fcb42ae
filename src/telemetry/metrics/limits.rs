//! The metrics of every limit: decisions by outcome, answers by failure policy, and hits as envoyproxy/ratelimit counts
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus::{IntCounter, Registry, Result};

use crate::engine::{
    DecidedBy, Decision, FailurePolicy, Limit, LimitResult, Plan, Quantity, Rule, RuleSet, Verdict,
};

use super::envoy_ratelimit::{HitBinding, HitCounts, HitFamilies};
use super::exposition::{CounterFamily, labels};
use super::family::counter;
use super::series::{Count, SeriesBinding, SeriesTable};

/// The domain and rule label of limits that a request overrides.
const OVERRIDE: &str = "override";

const DECISIONS: CounterFamily = CounterFamily {
    name: "ratelimitd_decisions_total",
    help: "Decisions by limit and outcome; unasked: skipped, because another limit denied the request",
};

const POLICY_DECISIONS: CounterFamily = CounterFamily {
    name: "ratelimitd_policy_decisions_total",
    help: "Decisions that a limit's failure policy made because the store did not answer",
};

#[derive(Debug)]
pub(super) struct LimitFamilies {
    decisions: SeriesTable<LimitLabels, LimitCounts>,
    hits: HitFamilies,
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
}

#[derive(Debug)]
struct Meter {
    counts: Arc<LimitCounts>,
    policy: FailurePolicy,
    /// `None` for overrides: envoyproxy/ratelimit labels them with values of the request.
    hits: Option<Arc<HitCounts>>,
}

impl LimitFamilies {
    pub(super) fn new(registry: &Registry, near_limit_ppm: u32) -> Result<Self> {
        Ok(Self {
            decisions: SeriesTable::default(),
            hits: HitFamilies::default(),
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
        each.push(Some(bindings.meter(overrides, rules.defaults().on_store_failure, None)));
        bindings.decisions.finish();
        bindings.hits.finish();
        LimitMeters { each, shadowed: self.shadowed.clone(), near_limit_ppm: self.near_limit_ppm }
    }

    /// Writes the series of the limits that have met a request.
    pub(super) fn write(&self, text: &mut String) {
        let limits = self.decisions.in_force();
        let used =
            || limits.iter().filter(|(_, counts)| counts.outcomes().iter().any(|&(_, count)| count > 0));
        DECISIONS.write(
            text,
            used().flat_map(|(limit, counts)| {
                counts.outcomes().map(|(outcome, count)| (limit.labels(("outcome", outcome)), count))
            }),
        );
        POLICY_DECISIONS.write(
            text,
            used().flat_map(|(limit, counts)| {
                counts.policies().map(|(policy, count)| (limit.labels(("policy", policy)), count))
            }),
        );
        self.hits.write(text);
    }
}

impl LimitLabels {
    /// In the order of their names, as the registry writes labels.
    fn labels(&self, between: (&str, &str)) -> String {
        labels([("domain", &self.domain), between, ("rule", &self.rule)])
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
    hits: HitBinding<'f>,
}

impl Bindings<'_> {
    fn rule_meter(&mut self, rule: &Rule, limit: &Limit) -> Option<Meter> {
        if limit.quantity == Quantity::Unlimited {
            return None;
        }
        let hits = self.hits.counts(rule);
        let policy = limit.spec.on_store_failure;
        let policy = if rule.shadow { policy.for_non_binding() } else { policy };
        let labels = LimitLabels { domain: Arc::clone(&rule.domain), rule: Arc::clone(&limit.label) };
        Some(self.meter(labels, policy, Some(hits)))
    }

    fn meter(&mut self, labels: LimitLabels, policy: FailurePolicy, hits: Option<Arc<HitCounts>>) -> Meter {
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
        for (limit, result) in decision.charges() {
            let Some(meter) = self.meter(limit) else { continue };
            match result {
                Some(result) => meter.record(&result, self.near_above(limit)),
                None => meter.counts.unasked.add(1),
            }
        }
    }

    /// Counts a request that fails because the store did not answer: an error for each of its limits, and an answer by
    /// policy for the limits with the policy `error`, which made the request fail.
    pub fn record_failure(&self, plan: &Plan) {
        for meter in plan.limits().filter_map(|limit| self.meter(limit)) {
            meter.counts.error.add(1);
            if meter.policy == FailurePolicy::Error {
                meter.count_policy();
            }
        }
    }

    fn meter(&self, limit: &Limit) -> Option<&Meter> {
        self.each.get(limit.id.0 as usize)?.as_ref()
    }

    /// A hit is near the limit when more units than this are used.
    fn near_above(&self, limit: &Limit) -> u64 {
        // Both factors are below 2^32.
        u64::from(limit.spec.capacity()) * u64::from(self.near_limit_ppm) / 1_000_000
    }
}

impl Meter {
    fn record(&self, result: &LimitResult<'_>, near_above: u64) {
        let outcome = result.outcome;
        let is_by_policy = matches!(outcome.decided_by, DecidedBy::Policy(_));
        let used = u64::from(result.limit.spec.capacity()).saturating_sub(outcome.report.remaining);
        let counts = &self.counts;
        let count = match outcome.verdict {
            Verdict::Over if result.is_shadow() => &counts.shadow,
            Verdict::Over => &counts.over_limit,
            // The remaining units of a policy's answer are not those of the limit.
            Verdict::Fits if used > near_above && !is_by_policy => &counts.near_limit,
            Verdict::Fits => &counts.ok,
        };
        count.add(1);
        if is_by_policy {
            self.count_policy();
        }
        if let Some(hits) = &self.hits {
            hits.record(result, near_above);
        }
    }

    fn count_policy(&self) {
        self.counts.of_policy(self.policy).answers.add(1);
    }
}
