//! The series of limits: makes the meters of new rules, and shows the outcomes that they count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::{Announced, FailurePolicy, Limit, Quantity, ReserveKind, Rule, RuleSet};
use prometheus::{IntCounter, Registry, Result};

use super::exceptions::ExceptionFamilies;
use super::family::counter;
use super::limits::{LimitCounts, LimitMeters, Meter};
use super::requests::ResultMeter;
use super::series::{Exposition, SeriesBinding, SeriesTable, labels};
use super::settles::{self, SettleCounts};
use super::soft_limits::mark_in_use;
use crate::telemetry::envoy_ratelimit::{HitBinding, HitFamilies, HitMeter};

/// The domain and rule label of limits that a request overrides.
const OVERRIDE: &str = "override";

const DECISIONS: &str = "ratelimitd_decisions_total";

const POLICY_DECISIONS: &str = "ratelimitd_policy_decisions_total";

const ANNOUNCED: &str = "ratelimitd_announced_total";

const RESERVE: &str = "ratelimitd_reserve_total";

#[derive(Debug)]
pub(super) struct LimitFamilies {
    decisions: SeriesTable<LimitLabels, LimitCounts>,
    settles: SeriesTable<LimitLabels, SettleCounts>,
    pub(super) hits: HitFamilies,
    pub(super) exceptions: ExceptionFamilies,
    shadowed: IntCounter,
    results: ResultMeter,
    without_limit: IntCounter,
    near_limit_ppm: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LimitLabels {
    pub(super) domain: Arc<str>,
    pub(super) rule: Arc<str>,
}

impl LimitFamilies {
    pub(super) fn new(
        registry: &Registry,
        results: ResultMeter,
        near_limit_ppm: u32,
        values_per_rule: usize,
        exceptions: ExceptionFamilies,
    ) -> Result<Self> {
        Ok(Self {
            exceptions,
            decisions: SeriesTable::default(),
            settles: SeriesTable::default(),
            hits: HitFamilies::new(values_per_rule),
            shadowed: counter(
                registry,
                "ratelimitd_shadowed_requests_total",
                "Requests over their limit that were answered OK because of shadow_mode",
            )?,
            results,
            without_limit: counter(
                registry,
                "ratelimitd_unlimited_requests_total",
                "Requests that met no limit although their domain has rules",
            )?,
            near_limit_ppm,
        })
    }

    pub(super) fn bind(&self, rules: &RuleSet) -> LimitMeters {
        let (decisions, settles) = (self.decisions.bind(), self.settles.bind());
        let mut bindings = Bindings { decisions, settles, hits: self.hits.bind() };
        let mut each = Vec::with_capacity(rules.limits().len() + 1);
        for rule in rules.rules() {
            each.extend(rule.limits.iter().map(|limit| bindings.rule_meter(rule, limit)));
        }
        let overrides = LimitLabels { domain: OVERRIDE.into(), rule: OVERRIDE.into() };
        let hits = bindings.hits.override_meter();
        each.push(Some(bindings.meter(overrides, rules.defaults().on_store_failure, hits)));
        bindings.decisions.finish();
        bindings.settles.finish();
        bindings.hits.finish();
        LimitMeters {
            each,
            exceptions: self.exceptions.bind(rules),
            shadowed: self.shadowed.clone(),
            results: self.results.clone(),
            without_limit: self.without_limit.clone(),
            near_limit_ppm: self.near_limit_ppm,
        }
    }

    /// Writes the series of the limits that have met a request.
    pub(super) fn write(&self, exposition: &mut Exposition<'_>) {
        let limits = self.decisions.in_force();
        let used = || limits.iter().filter(|(_, counts)| counts.is_used());
        exposition.family(DECISIONS, "counter", "Decisions by limit and outcome");
        for (limit, counts) in used() {
            for (outcome, count) in counts.outcomes() {
                exposition.sample(DECISIONS, &limit.labels(("outcome", outcome)), count);
            }
        }
        settles::write(exposition, &self.settles.in_force());
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
        write_announcements(exposition, &limits);
        write_reserves(exposition, &limits);
    }

    pub(super) fn in_force(&self) -> Arc<Vec<(LimitLabels, Arc<LimitCounts>)>> {
        self.decisions.in_force()
    }

    pub(super) fn without_limit(&self) -> u64 {
        self.without_limit.get()
    }

    /// The number of requests that were admitted only because of `shadow_mode`.
    pub(super) fn shadowed(&self) -> u64 {
        self.shadowed.get()
    }
}

type Limits = [(LimitLabels, Arc<LimitCounts>)];

fn write_announcements(exposition: &mut Exposition<'_>, limits: &Limits) {
    exposition.family(
        ANNOUNCED,
        "counter",
        "Decisions by limit that were announced: near, or over a limit that denies nothing",
    );
    for (limit, counts) in
        limits.iter().filter(|(_, counts)| counts.is_used() && is_set(&counts.announced.is_in_use))
    {
        for &announced in Announced::ALL {
            let (state, count) = (announced.name(), counts.announced.count(announced).get());
            exposition.sample(ANNOUNCED, &limit.labels(("state", state)), count);
        }
    }
}

fn write_reserves(exposition: &mut Exposition<'_>, limits: &Limits) {
    exposition.family(
        RESERVE,
        "counter",
        "Decisions by limits with reserve: checks that take the reserved units, and charges of the real cost",
    );
    for (limit, counts) in
        limits.iter().filter(|(_, counts)| counts.is_used() && is_set(&counts.reserved.is_in_use))
    {
        for &kind in ReserveKind::ALL {
            let count = counts.reserved.count(kind).get();
            exposition.sample(RESERVE, &limit.labels(("kind", kind.name())), count);
        }
    }
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

struct Bindings<'f> {
    decisions: SeriesBinding<'f, LimitLabels, LimitCounts>,
    settles: SeriesBinding<'f, LimitLabels, SettleCounts>,
    hits: HitBinding<'f>,
}

impl Bindings<'_> {
    fn rule_meter(&mut self, rule: &Rule, limit: &Limit) -> Option<Meter> {
        if limit.quantity == Quantity::Unlimited {
            return None;
        }
        let hits = self.hits.rule_meter(rule);
        let policy = limit.spec.on_store_failure;
        let policy = if limit.never_denies() { policy.for_non_binding() } else { policy };
        let labels = LimitLabels { domain: Arc::clone(&rule.domain), rule: Arc::clone(&limit.label) };
        let settles = limit.spec.settle.then(|| self.settles.counts(labels.clone()));
        let meter = self.meter(labels, policy, hits);
        mark_in_use(&limit.spec, &meter.counts.announced, &meter.counts.reserved);
        Some(Meter { settles, rule: limit.quantity, ..meter })
    }

    fn meter(&mut self, labels: LimitLabels, policy: FailurePolicy, hits: HitMeter) -> Meter {
        let counts = self.decisions.counts(labels);
        counts.of_policy(policy).is_in_use.store(true, Ordering::Relaxed);
        Meter { counts, rule: Quantity::Unlimited, policy, hits, settles: None }
    }
}

impl LimitLabels {
    /// In the order of their names, as the registry writes labels.
    pub(super) fn labels(&self, other: (&str, &str)) -> String {
        let mut pairs = [("domain", &*self.domain), ("rule", &*self.rule), other];
        pairs.sort_unstable();
        labels(&pairs)
    }
}

impl LimitCounts {
    /// Whether the limits have met a request.
    fn is_used(&self) -> bool {
        self.outcomes().iter().any(|&(_, count)| count > 0)
    }

    fn outcomes(&self) -> [(&'static str, u64); 5] {
        [
            ("ok", self.ok.get()),
            ("near_limit", self.near_limit.get()),
            ("over_limit", self.over_limit.get()),
            ("shadow", self.shadow.get()),
            ("error", self.error.get()),
        ]
    }

    fn policies(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = FailurePolicy::ALL.iter().zip(&self.by_policy);
        let in_use = all.filter(|(_, counted)| is_set(&counted.is_in_use));
        in_use.map(|(policy, counted)| (policy.name(), counted.answers.get()))
    }
}
