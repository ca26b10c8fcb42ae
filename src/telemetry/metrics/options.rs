//! What the metrics depend on: settings, and the parts that the process has.

use std::sync::Arc;

use store::deny_cache::DenyCacheStats;
use store::leases::LeaseStats;
use store::memory::MemoryStats;
use store::release_later::ReleaseStats;

use super::family::metric_name;
use crate::ledger::Ledger;
use crate::notify::NotifyStats;
use crate::telemetry::envoy_ratelimit::{ResponseTimeUnit, TimingQueue};

pub struct MetricsOptions {
    /// Share of a limit, in millionths, above which a hit counts as near it.
    pub near_limit_ppm: u32,
    /// Tags of every metric.
    pub extra_tags: ExtraTags,
    /// Unit of envoyproxy/ratelimit's histogram.
    pub response_time: ResponseTimeUnit,
    /// Maximum series with request values per rule.
    pub values_per_rule: usize,
    pub parts: MeteredParts,
}

/// Parts that not every process has. Metrics of a missing part are not exported.
#[derive(Default)]
pub struct MeteredParts {
    /// Reads whether the process is ready.
    pub is_ready: Option<PulledStats<bool>>,
    pub rules: Option<RulesOrigin>,
    /// Reads the seconds since the current exceptions last matched their files.
    pub exceptions_age: Option<PulledStats<u64>>,
    /// Reads the seconds since the live exceptions last equalled the rows in Redis.
    pub live_age: Option<PulledStats<u64>>,
    /// Reads the number of lost log lines.
    pub lost_log_lines: Option<PulledStats<u64>>,
    pub memory: Option<PulledStats<MemoryStats>>,
    pub deny_cache: Option<PulledStats<DenyCacheStats>>,
    pub leases: Option<PulledStats<LeaseStats>>,
    pub releases: Option<PulledStats<ReleaseStats>>,
    /// `true` if one-second limits have their own Redis servers.
    pub has_per_second: bool,
    /// `true` if there are Redis servers that all regions share.
    pub has_home: bool,
    pub has_traces: bool,
    pub ledger: Option<Arc<Ledger>>,
    pub notices: Option<Arc<NotifyStats>>,
    /// Call durations for statsd.
    pub timings: Option<TimingQueue>,
}

/// Reads values at each scrape.
pub type PulledStats<S> = Arc<dyn Fn() -> S + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesOrigin {
    Files,
    Xds,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        Self {
            near_limit_ppm: 800_000,
            extra_tags: ExtraTags::default(),
            response_time: ResponseTimeUnit::default(),
            values_per_rule: 1_000,
            parts: MeteredParts::default(),
        }
    }
}

/// The operator's tags on every metric: labels for Prometheus, tags for statsd. Names and values, in the order written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraTags(Vec<(String, String)>);

/// Labels that metrics already have.
const TAKEN: [&str; 24] = [
    "domain",
    "key1",
    "key2",
    "grpc_method",
    "err_type",
    "le",
    "quantile",
    "rule",
    "outcome",
    "policy",
    "transport",
    "kind",
    "store",
    "state",
    "port",
    "reason",
    "result",
    "version",
    "file",
    "source",
    "op",
    "digest",
    "event",
    "place",
];

impl ExtraTags {
    /// Parses `name:value,name:value`, the syntax of `EXTRA_TAGS` in envoyproxy/ratelimit. `None` for a name that is
    /// repeated or reserved by Prometheus, and for a name or value that statsd cannot transport.
    pub fn parse(text: &str) -> Option<Self> {
        let mut tags: Vec<(String, String)> = Vec::new();
        for tag in text.split(',').filter(|_| !text.is_empty()) {
            let (name, value) = tag.split_once(':')?;
            let is_plain =
                |text: &str| !text.is_empty() && !text.contains(|c: char| c.is_control() || c == '|');
            let is_free = !label_name(name).starts_with("__");
            let is_new = tags.iter().all(|(known, _)| label_name(known) != label_name(name));
            if !(is_plain(name) && is_plain(value) && is_free && is_new) {
                return None;
            }
            tags.push((name.to_owned(), value.to_owned()));
        }
        Some(Self(tags))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// As Prometheus labels.
    pub(super) fn label_pairs(&self) -> Vec<(String, String)> {
        self.iter().map(|(name, value)| (label_name(name), value.to_owned())).collect()
    }
}

/// Turns a tag's name into a label name. A name that a metric already has gets the prefix that Prometheus itself gives
/// to such a label of a target.
fn label_name(tag: &str) -> String {
    let name = metric_name(tag);
    match name.chars().next() {
        _ if TAKEN.contains(&name.as_str()) => format!("exported_{name}"),
        Some(first) if first.is_ascii_digit() => format!("_{name}"),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_read_as_envoyproxy_ratelimit_spells_them() {
        let tags = |text| {
            let labels = ExtraTags::parse(text)?.label_pairs();
            Some(labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(","))
        };
        let cases = [
            ("", Some("")),
            ("env:prod,region:eu", Some("env=prod,region=eu")),
            ("kube-cluster:a:b,1st:x", Some("kube_cluster=a:b,_1st=x")),
            ("a", None),
            ("a:", None),
            (":a", None),
            ("a:1,", None),
            ("a:1,a:2", None),
            ("a-b:1,a.b:2", None),
            ("version:v1,domain:d", Some("exported_version=v1,exported_domain=d")),
            ("source:a,exported_source:b", None),
            ("__name__:x", None),
            ("a:x|y", None),
            ("a:x\ny", None),
        ];
        for (text, expected) in cases {
            assert_eq!(tags(text).as_deref(), expected, "{text}");
        }
    }
}
