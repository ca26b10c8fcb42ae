//! Metrics of exceptions: the current ones, their loads, and the requests that they change.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{Change, ChangedBy, Derivation, ExceptionKind, RuleSet};
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, IntGaugeVec, Opts, Registry, Result};

use super::family::{ReadFamily, add_series, counter, counters, register_read};
use super::options::PulledStats;
use super::series::{Count, SeriesTable};

/// Origin of the exceptions, as a label.
const FILE: &str = "file";
const LIVE: &str = "live";

const AGE: ReadFamily = ReadFamily::gauge(
    "ratelimitd_exceptions_age_seconds",
    "Seconds since the active exceptions were last known to match their source",
);
const REQUESTS: ReadFamily = ReadFamily::counter(
    "ratelimitd_exception_requests_total",
    "Requests with a limit changed by an exception, by kind of exception",
);
const UNKNOWN_TIERS: ReadFamily =
    ReadFamily::counter("ratelimitd_unknown_tier_total", "Requests with a tier unknown to their limit");

/// Counts of one domain.
#[derive(Debug, Default)]
pub struct ExceptionCounts {
    /// In the order of [`ExceptionKind::all`].
    requests: [Count; ExceptionKind::COUNT],
    unknown_tiers: Count,
}

impl ExceptionCounts {
    /// Counts a request once per kind, however many limits it has.
    pub(super) fn record(&self, derivations: &[Derivation]) {
        let steps = || derivations.iter().flat_map(|derivation| &derivation.steps);
        for (kind, count) in ExceptionKind::all().zip(&self.requests) {
            if steps().any(|step| step.by != ChangedBy::Entry && step.change.kind() == Some(kind)) {
                count.add(1);
            }
        }
        if steps().any(|step| matches!(step.change, Change::UnknownTier(_))) {
            self.unknown_tiers.add(1);
        }
    }
}

#[derive(Debug)]
pub(crate) struct ExceptionFamilies {
    rows: IntGaugeVec,
    loads: IntCounterVec,
    writes: IntCounterVec,
    pub(crate) restores: IntCounter,
    domains: SeriesTable<Arc<str>, ExceptionCounts>,
}

impl ExceptionFamilies {
    pub(super) const READ: [ReadFamily; 2] = [REQUESTS, UNKNOWN_TIERS];

    /// `age_seconds`: time since the current exceptions last matched the files; `None` without exceptions. `live_age`:
    /// the same of live exceptions and Redis; `None` if they are not there.
    pub(super) fn new(
        registry: &Registry,
        age_seconds: Option<PulledStats<u64>>,
        live_age: Option<PulledStats<u64>>,
    ) -> Result<Self> {
        let rows = IntGaugeVec::new(
            Opts::new("ratelimitd_exceptions", "Active exceptions by kind of change"),
            &["source", "kind"],
        )?;
        registry.register(Box::new(rows.clone()))?;
        let loads = counters(
            registry,
            "ratelimitd_exception_loads_total",
            "Loads of exceptions by result; a failed load keeps the previous exceptions active",
            &["source", "result"],
        )?;
        if age_seconds.is_some() {
            // From the start, so that the first failure is an increase.
            for result in ["success", "failure"] {
                loads.with_label_values(&[FILE, result]);
            }
        }
        let ages = [(FILE, age_seconds), (LIVE, live_age)];
        let ages: Vec<_> = ages.into_iter().filter_map(|(source, age)| Some((source, age?))).collect();
        if !ages.is_empty() {
            register_read(registry, &[AGE], move || {
                let mut family = AGE.empty();
                ages.iter().for_each(|(source, age)| add_series(&mut family, &[("source", source)], age()));
                vec![family]
            })?;
        }
        let writes = counters(
            registry,
            "ratelimitd_exception_writes_total",
            "Changes of live exceptions by operators",
            &["op", "result"],
        )?;
        for op in ["set", "remove"] {
            for result in ["success", "refused", "failure"] {
                writes.with_label_values(&[op, result]);
            }
        }
        let restores = counter(
            registry,
            "ratelimitd_exception_restores_total",
            "Live exceptions that this process gave back to Redis after a loss",
        )?;
        Ok(Self { rows, loads, writes, restores, domains: SeriesTable::default() })
    }

    pub(super) fn bind(&self, rules: &RuleSet) -> HashMap<Arc<str>, Arc<ExceptionCounts>> {
        let mut binding = self.domains.bind();
        let names =
            rules.domains().filter_map(|name| rules.domain(name)).map(|domain| Arc::clone(&domain.name));
        let counts = names.map(|name| (Arc::clone(&name), binding.counts(name))).collect();
        binding.finish();
        counts
    }

    /// Counts a successful load; `kinds` has the number of exceptions of each kind.
    pub(crate) fn loaded(&self, kinds: impl Iterator<Item = (ExceptionKind, u64)>) {
        self.loads.with_label_values(&[FILE, "success"]).inc();
        self.set_rows(FILE, kinds);
    }

    /// `kinds`: live exceptions of each kind.
    pub(crate) fn live(&self, kinds: impl Iterator<Item = (ExceptionKind, u64)>) {
        self.set_rows(LIVE, kinds);
    }

    fn set_rows(&self, source: &str, kinds: impl Iterator<Item = (ExceptionKind, u64)>) {
        for (kind, rows) in kinds {
            self.rows.with_label_values(&[source, kind.into_str()]).set(rows.cast_signed());
        }
    }

    /// Counts a change of live exceptions.
    pub(crate) fn written(&self, op: &str, result: &str) {
        self.writes.with_label_values(&[op, result]).inc();
    }

    /// Requests that exceptions of this kind have changed so far.
    pub(super) fn requests(&self, kind: ExceptionKind) -> u64 {
        let domains = self.domains.in_force();
        domains.values().map(|counts| counts.requests[kind as usize].get()).sum()
    }

    pub(crate) fn failed(&self) {
        self.loads.with_label_values(&[FILE, "failure"]).inc();
    }

    /// Reads the series of domains that have used an exception.
    pub(super) fn read_families(&self) -> Vec<MetricFamily> {
        let (mut requests, mut unknown_tiers) = (REQUESTS.empty(), UNKNOWN_TIERS.empty());
        for (domain, counts) in self.domains.in_force().iter() {
            let kinds = ExceptionKind::all().zip(&counts.requests);
            for (kind, count) in kinds.filter(|(_, count)| count.get() > 0) {
                add_series(&mut requests, &[("domain", domain), ("kind", kind.into_str())], count.get());
            }
            if counts.unknown_tiers.get() > 0 {
                add_series(&mut unknown_tiers, &[("domain", domain)], counts.unknown_tiers.get());
            }
        }
        vec![requests, unknown_tiers]
    }
}
