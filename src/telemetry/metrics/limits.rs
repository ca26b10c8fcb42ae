//! The metrics of every limit: decisions by outcome, answers by failure policy, and hits as envoyproxy/ratelimit counts
//! them.

use prometheus::{IntCounter, Registry, Result};

use crate::engine::{
    DecidedBy, Decision, FailurePolicy, Limit, LimitResult, Plan, Quantity, Rule, RuleSet, Verdict,
};

use super::envoy_ratelimit::{HitCounters, HitFamilies};
use super::family::{Binding, RuleCounters, counter};

/// The domain and rule label of limits that a request overrides.
const OVERRIDE: &str = "override";

#[derive(Debug)]
pub(super) struct LimitFamilies {
    decisions: RuleCounters,
    policies: RuleCounters,
    hits: HitFamilies,
    shadowed: IntCounter,
    near_limit_ppm: u32,
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
    ok: IntCounter,
    near_limit: IntCounter,
    over_limit: IntCounter,
    /// The limit was skipped, because another limit denied the request.
    unasked: IntCounter,
    shadow: IntCounter,
    error: IntCounter,
    by_policy: IntCounter,
    policy: FailurePolicy,
    /// `None` for overrides: envoyproxy/ratelimit labels them with values of the request.
    hits: Option<HitCounters>,
}

impl LimitFamilies {
    pub(super) fn new(registry: &Registry, near_limit_ppm: u32) -> Result<Self> {
        Ok(Self {
            decisions: RuleCounters::new(
                registry,
                "ratelimitd_decisions_total",
                "Decisions by limit and outcome; unasked: skipped, because another limit denied the request",
                &["domain", "rule", "outcome"],
            )?,
            policies: RuleCounters::new(
                registry,
                "ratelimitd_policy_decisions_total",
                "Decisions that a limit's failure policy made because the store did not answer",
                &["domain", "rule", "policy"],
            )?,
            hits: HitFamilies::new(registry)?,
            shadowed: counter(
                registry,
                "ratelimitd_shadowed_requests_total",
                "Requests over their limit that were answered OK because of shadow_mode",
            )?,
            near_limit_ppm,
        })
    }

    pub(super) fn bind(&self, rules: &RuleSet) -> LimitMeters {
        let mut bindings = Bindings {
            decisions: self.decisions.bind(),
            policies: self.policies.bind(),
            hits: self.hits.bind(),
        };
        let mut each = Vec::with_capacity(rules.limits().len() + 1);
        for rule in rules.rules() {
            each.extend(rule.limits.iter().map(|limit| bindings.rule_meter(rule, limit)));
        }
        let policy = rules.defaults().on_store_failure;
        each.push(Some(bindings.meter([OVERRIDE, OVERRIDE], policy, None)));
        bindings.decisions.finish();
        bindings.policies.finish();
        bindings.hits.finish();
        LimitMeters { each, shadowed: self.shadowed.clone(), near_limit_ppm: self.near_limit_ppm }
    }
}

struct Bindings<'f> {
    decisions: Binding<'f>,
    policies: Binding<'f>,
    hits: super::envoy_ratelimit::HitBinding<'f>,
}

impl Bindings<'_> {
    fn rule_meter(&mut self, rule: &Rule, limit: &Limit) -> Option<Meter> {
        if limit.quantity == Quantity::Unlimited {
            return None;
        }
        let hits = self.hits.counters(rule);
        let policy = limit.spec.on_store_failure;
        let policy = if rule.shadow { policy.for_non_binding() } else { policy };
        Some(self.meter([&rule.domain, &limit.label], policy, Some(hits)))
    }

    fn meter(
        &mut self,
        [domain, rule]: [&str; 2],
        policy: FailurePolicy,
        hits: Option<HitCounters>,
    ) -> Meter {
        let mut counter = |outcome| self.decisions.counter(&[domain, rule, outcome]);
        Meter {
            ok: counter("ok"),
            near_limit: counter("near_limit"),
            over_limit: counter("over_limit"),
            unasked: counter("unasked"),
            shadow: counter("shadow"),
            error: counter("error"),
            by_policy: self.policies.counter(&[domain, rule, policy.name()]),
            policy,
            hits,
        }
    }
}

impl LimitMeters {
    /// Counts a decision, once for each of its limits.
    pub fn record(&self, decision: &Decision) {
        if decision.shadowed {
            self.shadowed.inc();
        }
        for (limit, result) in decision.counters() {
            let Some(meter) = self.meter(limit) else { continue };
            match result {
                Some(result) => meter.record(&result, self.near_above(limit)),
                None => meter.unasked.inc(),
            }
        }
    }

    /// Counts a request that fails because the store did not answer: an error for each of its limits, and an answer by
    /// policy for the limits with the policy `error`, which made the request fail.
    pub fn record_failure(&self, plan: &Plan) {
        for meter in plan.limits().filter_map(|limit| self.meter(limit)) {
            meter.error.inc();
            if meter.policy == FailurePolicy::Error {
                meter.by_policy.inc();
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
        let counter = match outcome.verdict {
            Verdict::Over if result.is_shadow() => &self.shadow,
            Verdict::Over => &self.over_limit,
            // The remaining units of a policy's answer are not those of the limit.
            Verdict::Fits if used > near_above && !is_by_policy => &self.near_limit,
            Verdict::Fits => &self.ok,
        };
        counter.inc();
        if is_by_policy {
            self.by_policy.inc();
        }
        if let Some(hits) = &self.hits {
            hits.record(result, near_above);
        }
    }
}
