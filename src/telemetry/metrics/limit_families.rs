//! Series of limits: creates the meters of new rules, and exports the outcomes that they count.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{Algorithm, FailurePolicy, Limit, Quantity, Rule, RuleSet};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, Registry, Result};

use super::exceptions::ExceptionCounts;
use super::family::{CountersBy, ReadFamily, add_series, counter};
use super::limit_counts::{LimitCounts, SettleCounts, SlotCounts};
use super::limits::{LimitMeters, Meter};
use super::requests::RequestResult;
use super::series::{SeriesBinding, SeriesTable};
use crate::ledger::LimitLabels;
use crate::telemetry::envoy_ratelimit::{HitFamilies, OVERRIDE_PATH, RuleHits};

/// Domain and rule label of limits that a request overrides.
const OVERRIDE: &str = "override";

const DECISIONS: ReadFamily =
    ReadFamily::counter("ratelimitd_decisions_total", "Decisions by limit and outcome");
const POLICY_DECISIONS: ReadFamily = ReadFamily::counter(
    "ratelimitd_policy_decisions_total",
    "Decisions by a limit's failure policy because the store did not answer",
);
const ANNOUNCED: ReadFamily = ReadFamily::counter(
    "ratelimitd_announced_total",
    "Announced decisions by limit and level: near, or over a limit that does not deny",
);
const RESERVE: ReadFamily = ReadFamily::counter(
    "ratelimitd_reserve_total",
    "Decisions by limits with reserve, by kind: checks that reserve units, and charges of the real cost",
);
const SETTLES: ReadFamily =
    ReadFamily::counter("ratelimitd_settles_total", "Receipts returned, by limit and booking");
const RECEIPTS: ReadFamily =
    ReadFamily::counter("ratelimitd_receipts_total", "Receipts given out, by limit: one for each answer");
const SETTLE_UNITS: ReadFamily = ReadFamily::counter(
    "ratelimitd_settle_units_total",
    "Units of the receipts returned: the estimate, and the real cost",
);
const SLOTS: ReadFamily = ReadFamily::counter(
    "ratelimitd_slots_total",
    "Slots of concurrency limits that were taken, renewed, released or kept, or that ended by themselves",
);

#[derive(Debug)]
pub(super) struct LimitFamilies {
    pub(super) decisions: SeriesTable<LimitLabels, LimitCounts>,
    settles: SeriesTable<LimitLabels, SettleCounts>,
    slots: SeriesTable<LimitLabels, SlotCounts>,
    pub(super) hits: HitFamilies,
    /// Requests admitted only because of `shadow_mode`.
    pub(super) shadowed: IntCounter,
    results: CountersBy<RequestResult>,
    pub(super) without_limit: IntCounter,
    near_limit_ppm: u32,
    values_per_rule: usize,
}

impl LimitFamilies {
    pub(super) const READ: [ReadFamily; 8] =
        [DECISIONS, POLICY_DECISIONS, ANNOUNCED, RESERVE, SETTLES, SETTLE_UNITS, SLOTS, RECEIPTS];

    pub(super) fn new(
        registry: &Registry,
        results: CountersBy<RequestResult>,
        near_limit_ppm: u32,
        values_per_rule: usize,
    ) -> Result<Self> {
        Ok(Self {
            decisions: SeriesTable::default(),
            settles: SeriesTable::default(),
            slots: SeriesTable::default(),
            hits: HitFamilies::default(),
            shadowed: counter(
                registry,
                "ratelimitd_shadowed_requests_total",
                "Requests over their limit answered OK because of shadow_mode",
            )?,
            results,
            without_limit: counter(
                registry,
                "ratelimitd_unlimited_requests_total",
                "Requests without a matching limit although their domain has rules",
            )?,
            near_limit_ppm,
            values_per_rule,
        })
    }

    /// `exceptions`: counts of the domains.
    pub(super) fn bind(
        &self,
        rules: &RuleSet,
        exceptions: HashMap<Arc<str>, Arc<ExceptionCounts>>,
    ) -> LimitMeters {
        let (decisions, settles, slots) = (self.decisions.bind(), self.settles.bind(), self.slots.bind());
        let mut bindings = Bindings { decisions, settles, slots, hits: self.hits.bind() };
        let mut each = Vec::with_capacity(rules.limits().len() + 1);
        for rule in rules.rules() {
            each.extend(rule.limits.iter().map(|limit| bindings.rule_meter(rule, limit)));
        }
        let overrides = LimitLabels { domain: OVERRIDE.into(), rule: OVERRIDE.into() };
        let hits = bindings.hits.counts(OVERRIDE_PATH.into());
        each.push(Some(bindings.meter(overrides, rules.defaults().on_store_failure, hits)));
        bindings.decisions.finish();
        bindings.settles.finish();
        bindings.slots.finish();
        bindings.hits.finish();
        LimitMeters {
            each,
            exceptions,
            shadowed: self.shadowed.clone(),
            results: self.results.clone(),
            without_limit: self.without_limit.clone(),
            near_limit_ppm: self.near_limit_ppm,
            values_per_rule: self.values_per_rule,
        }
    }

    /// Reads the series of limits that have been used or settled.
    pub(super) fn read_families(&self) -> Vec<MetricFamily> {
        let (limits, settles, slots) =
            (self.decisions.in_force(), self.settles.in_force(), self.slots.in_force());
        let used: Vec<_> = limits.iter().filter(|(_, counts)| counts.is_used()).collect();
        let settled: Vec<_> = settles.iter().filter(|(_, counts)| counts.is_used()).collect();
        let slots: Vec<_> = slots.iter().filter(|(_, counts)| counts.is_used()).collect();
        let mut receipts = RECEIPTS.empty();
        for (LimitLabels { domain, rule }, counts) in &settled {
            add_series(&mut receipts, &[("domain", &**domain), ("rule", rule)], counts.receipts());
        }
        vec![
            by_limit(DECISIONS, "outcome", &used, LimitCounts::outcomes),
            by_limit(POLICY_DECISIONS, "policy", &used, LimitCounts::policies),
            by_limit(ANNOUNCED, "state", &used, LimitCounts::announcements),
            by_limit(RESERVE, "kind", &used, LimitCounts::reserves),
            by_limit(SETTLES, "result", &settled, SettleCounts::results),
            by_limit(SETTLE_UNITS, "kind", &settled, SettleCounts::units),
            by_limit(SLOTS, "result", &slots, SlotCounts::results),
            receipts,
        ]
    }
}

/// Reads a family: for each limit, the values of `label` with their counts.
fn by_limit<'l, C, V>(
    family: ReadFamily,
    label: &str,
    limits: &[(&LimitLabels, &'l Arc<C>)],
    values: impl Fn(&'l C) -> V,
) -> MetricFamily
where
    V: IntoIterator<Item = (&'static str, u64)>,
{
    let mut family = family.empty();
    // The first value of each limit, then the second, and so on: the registry then has little to sort.
    for place in 0.. {
        let before = family.get_metric().len();
        for (LimitLabels { domain, rule }, counts) in limits.iter().copied() {
            if let Some((value, count)) = values(counts).into_iter().nth(place) {
                let mut labels = [("domain", &**domain), ("rule", rule), (label, value)];
                // Sorted as the registry sorts labels in other families.
                labels.sort_unstable();
                add_series(&mut family, &labels, count);
            }
        }
        if family.get_metric().len() == before {
            break;
        }
    }
    family
}

struct Bindings<'f> {
    decisions: SeriesBinding<'f, LimitLabels, LimitCounts>,
    settles: SeriesBinding<'f, LimitLabels, SettleCounts>,
    slots: SeriesBinding<'f, LimitLabels, SlotCounts>,
    hits: SeriesBinding<'f, Box<str>, RuleHits>,
}

impl Bindings<'_> {
    fn rule_meter(&mut self, rule: &Rule, limit: &Limit) -> Option<Meter> {
        if limit.quantity == Quantity::Unlimited {
            return None;
        }
        let hits = self.hits.counts((*rule.path).into());
        let policy = limit.spec.on_store_failure;
        let policy = if limit.never_denies() { policy.allow_for_error() } else { policy };
        let labels = LimitLabels { domain: Arc::clone(&rule.domain), rule: Arc::clone(&limit.label) };
        let has_slots = limit.spec.algorithm == Algorithm::Concurrency;
        let slots = has_slots.then(|| self.slots.counts(labels.clone()));
        let settles = (limit.spec.settle && !has_slots).then(|| self.settles.counts(labels.clone()));
        let booked = limit.spec.ledger.then(|| Arc::new(labels.clone()));
        let meter = self.meter(labels, policy, hits);
        meter.counts.use_spec(&limit.spec);
        Some(Meter { settles, slots, booked, rule: limit.quantity, ..meter })
    }

    fn meter(&mut self, labels: LimitLabels, policy: FailurePolicy, hits: Arc<RuleHits>) -> Meter {
        let counts = self.decisions.counts(labels);
        counts.use_policy(policy);
        Meter { counts, rule: Quantity::Unlimited, policy, hits, settles: None, slots: None, booked: None }
    }
}
