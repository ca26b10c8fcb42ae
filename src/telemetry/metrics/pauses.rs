//! Metrics of `penalty` and `feedback`. Only denied requests, reports and the task that acts on them count here.

use std::collections::{HashMap, HashSet};

use engine::{PauseCause, PauseEvent, RuleSet};
use prometheus::core::Collector as _;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, Registry, Result};

use super::family::{counter, counters};

/// Clones share the counts.
#[derive(Clone, Debug)]
pub struct PauseMeter {
    offences: IntCounterVec,
    pub(crate) dropped: IntCounter,
    bans: IntCounterVec,
    reports: IntCounterVec,
}

impl PauseMeter {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let by_limit = |name, help| counters(registry, name, help, &["domain", "rule"]);
        let (pauses, reports) = ("ratelimitd_pauses_total", "Pauses that callers reported, by result");
        let dropped =
            "Offences and reported pauses without effect: too many, no answer of the store, or a bad value";
        Ok(Self {
            offences: by_limit(
                "ratelimitd_offences_total",
                "Denials that count for the penalty of their limit",
            )?,
            dropped: counter(registry, "ratelimitd_offences_dropped_total", dropped)?,
            bans: by_limit("ratelimitd_bans_total", "Values banned by the penalty of a limit")?,
            reports: counters(registry, pauses, reports, &["domain", "rule", "result"])?,
        })
    }

    /// Creates the series of these rules, so that the first event is an increase, and ends other series.
    pub(super) fn bind(&self, rules: &RuleSet) {
        let limits = rules.rules().iter().flat_map(|rule| rule.limits.iter().map(move |limit| (rule, limit)));
        let kept: HashSet<_> = limits.clone().map(|(rule, limit)| (&*rule.domain, &*limit.label)).collect();
        for counters in [&self.offences, &self.bans, &self.reports] {
            for series in counters.collect().iter().flat_map(MetricFamily::get_metric) {
                let labels: HashMap<_, _> =
                    series.get_label().iter().map(|label| (label.name(), label.value())).collect();
                if !kept.contains(&(labels["domain"], labels["rule"])) {
                    // Fails only for series that do not exist.
                    let _ = counters.remove(&labels);
                }
            }
        }
        for (rule, limit) in limits {
            let labels = [&*rule.domain, &*limit.label];
            if limit.spec.penalty.is_some() {
                self.offences.with_label_values(&labels);
                self.bans.with_label_values(&labels);
            }
            if limit.spec.feedback.is_some() {
                for result in ["set", "kept", "unreadable", "refused"] {
                    self.reports.with_label_values(&[labels[0], labels[1], result]);
                }
            }
        }
    }

    /// Counts what is known without the task: an offence, or a report that changes nothing.
    pub(crate) fn count(&self, event: &PauseEvent) {
        match event.cause {
            PauseCause::Offence { .. } => self.offences.with_label_values(&labels(event)).inc(),
            PauseCause::Unreadable => self.report(event, "unreadable"),
            PauseCause::Refused => self.report(event, "refused"),
            PauseCause::Reported { .. } => {}
        }
    }

    /// Bans so far.
    pub(super) fn bans(&self) -> u64 {
        let families = self.bans.collect();
        let limits = families.iter().flat_map(MetricFamily::get_metric);
        limits.map(|limit| limit.get_counter().get_value() as u64).sum()
    }

    pub(crate) fn banned(&self, event: &PauseEvent) {
        self.bans.with_label_values(&labels(event)).inc();
    }

    /// `is_new`: `true` if the pause now ends later.
    pub(crate) fn paused(&self, event: &PauseEvent, is_new: bool) {
        self.report(event, if is_new { "set" } else { "kept" });
    }

    fn report(&self, event: &PauseEvent, result: &str) {
        self.reports.with_label_values(&[&event.domain, &event.rule, result]).inc();
    }
}

fn labels(event: &PauseEvent) -> [&str; 2] {
    [&event.domain, &event.rule]
}
