//! All metrics: names, help and labels. Injected, no globals. Label values come from rule files, settings and constants
//! here, which bounds the number of series. Request values appear only in the metrics of envoyproxy/ratelimit, in
//! bounded number, if a rule asks for them. Meters hold handles: counting is a few atomic additions. Potentially many
//! series are counted in `series.rs`, and read at each scrape.

mod denied_keys;
mod exceptions;
pub(super) mod family;
mod ledger;
mod limit_counts;
mod limit_families;
mod limits;
mod notices;
mod options;
mod pauses;
mod ports;
mod requests;
mod rule_loads;
mod sample;
pub(super) mod series;
mod stores;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use engine::RuleSet;
use prometheus::proto::MetricFamily;
use prometheus::{IntCounter, IntCounterVec, Registry, Result, TextEncoder};
use store::deny_cache::DenyCacheStats;

use crate::telemetry::envoy_ratelimit::{self, OwnCounts, RESPONSE_TIME, Stat, Stats, add_hits, lost_lines};
use denied_keys::CountingWorkers;
use exceptions::ExceptionFamilies;
use family::{ReadFamily, counter, counters, register_read, watch};
use limit_families::LimitFamilies;
use ports::{ConnectionFamilies, TlsFamilies, token_meter};
use requests::RequestFamilies;
use rule_loads::RuleFamilies;
use series::Count;
use stores::StoreFamilies;

pub use denied_keys::{CountedKeys, DeniedByLimit, DeniedCharge, DeniedKeys, LOOKED_AT, LimitRef};
pub use family::DurationBuckets;
pub use limits::LimitMeters;
pub use options::{ExtraTags, MeteredParts, MetricsOptions, PulledStats, RulesOrigin};
pub use pauses::PauseMeter;
pub use ports::{
    CertificateExpiry, CloseReason, ConnectionMeter, HandshakeResult, Port, TlsMeter, TokenMeter,
    TokenRefusal,
};
pub use requests::{RequestFailure, RequestMeter, RequestResult, Timer, TraceMeter, Transport};
pub use rule_loads::{Loaded, XdsAnswer, XdsFailure, XdsMeter};
pub use sample::{LimitReading, LimitsInForce, MetricsSample};
pub(crate) use stores::ServerGroup;
pub use stores::{BatchMeter, StoreMeter};

/// Families of which the registry reads many series at each scrape.
const READ_AT_SCRAPE: [&[ReadFamily]; 4] =
    [&LimitFamilies::READ, &ExceptionFamilies::READ, &[RESPONSE_TIME], &envoy_ratelimit::FAMILIES];

const BUILD_INFO: ReadFamily =
    ReadFamily::gauge("ratelimitd_build_info", "Always 1; the label is the version");
const READY: ReadFamily =
    ReadFamily::gauge("ratelimitd_ready", "1 while the process is ready, as /readyz says; otherwise 0");
const RULES_SOURCE: ReadFamily =
    ReadFamily::gauge("ratelimitd_rules_source_info", "Always 1; the label is where the rules come from");
const LOST_LOG_LINES: ReadFamily = ReadFamily::counter(
    "ratelimitd_log_lines_lost_total",
    "Log lines lost: the log is full, or its reader is gone or too slow",
);

const HOLDS: &str = "ratelimitd_holds_total";
const RESERVE_RESULTS: [&str; 3] = ["ok", "over_limit", "error"];
const COMMIT_RESULTS: [&str; 5] = ["settled", "already", "expired", "lost", "error"];

/// All metrics of a process. Clones share the counts.
#[derive(Clone)]
pub struct Metrics {
    registry: Registry,
    /// Number of labels common to every series.
    tags: usize,
    pub(crate) families: Arc<Families>,
}

pub(crate) struct Families {
    pub(crate) exceptions: ExceptionFamilies,
    holds: IntCounterVec,
    limits: LimitFamilies,
    pub(crate) pauses: PauseMeter,
    unknown_domains: IntCounter,
    /// Descriptors of requests for unknown domains.
    unknown_descriptors: Count,
    requests: RequestFamilies,
    connections: ConnectionFamilies,
    pub(crate) stores: StoreFamilies,
    pub(crate) rules: RuleFamilies,
    tls: TlsFamilies,
    tokens: TokenMeter,
    pub(crate) xds: XdsMeter,
    pub(crate) traces: TraceMeter,
    deny_cache: Option<PulledStats<DenyCacheStats>>,
    lost_log_lines: Option<PulledStats<u64>>,
    denied_keys: CountingWorkers,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Registers all metrics. `near_limit_ppm`: share of a limit, in millionths, above which a hit counts as near it;
    /// everything else is the default.
    ///
    /// # Errors
    /// If two metrics have the same name.
    pub fn new(near_limit_ppm: u32) -> Result<Self> {
        Self::with_options(MetricsOptions { near_limit_ppm, ..MetricsOptions::default() })
    }

    /// Registers all metrics.
    ///
    /// # Errors
    /// If two metrics have the same name.
    pub fn with_options(options: MetricsOptions) -> Result<Self> {
        let labels: HashMap<_, _> = options.extra_tags.label_pairs().into_iter().collect();
        let tags = labels.len();
        let registry = Registry::new_custom(None, Some(labels))?;
        register_process(&registry)?;
        let MetricsOptions { near_limit_ppm, response_time, values_per_rule, parts, .. } = options;
        let lost = parts.timings.as_ref().map_or_else(lost_lines, |queue| queue.lost.clone());
        registry.register(Box::new(lost))?;
        let stores = StoreFamilies::new(&registry)?;
        register_parts(&registry, &parts, &stores)?;
        // For metrics of missing parts.
        let hidden = Registry::new();
        let shown = |is_there| if is_there { &registry } else { &hidden };
        let requests = RequestFamilies::new(&registry, response_time, parts.timings)?;
        let results = requests.results.clone();
        let families = Arc::new(Families {
            exceptions: ExceptionFamilies::new(&registry, parts.exceptions_age, parts.live_age)?,
            holds: counters(
                &registry,
                HOLDS,
                "Reservations and commits of holds, by result",
                &["op", "result"],
            )?,
            limits: LimitFamilies::new(&registry, results, near_limit_ppm, values_per_rule)?,
            pauses: PauseMeter::new(&registry)?,
            unknown_domains: counter(
                &registry,
                "ratelimitd_unknown_domain_total",
                "Requests for domains without rules",
            )?,
            unknown_descriptors: Count::default(),
            requests,
            connections: ConnectionFamilies::new(&registry)?,
            stores,
            rules: RuleFamilies::new(&registry)?,
            tls: TlsFamilies::new(&registry)?,
            tokens: token_meter(&registry)?,
            xds: XdsMeter::new(shown(parts.rules == Some(RulesOrigin::Xds)))?,
            traces: TraceMeter::new(shown(parts.has_traces))?,
            deny_cache: parts.deny_cache,
            lost_log_lines: parts.lost_log_lines,
            denied_keys: CountingWorkers::default(),
        });
        // Every series exists from the start, so that the first one is an increase.
        RESERVE_RESULTS
            .iter()
            .for_each(|result| drop(families.holds.with_label_values(&["reserve", result])));
        COMMIT_RESULTS.iter().for_each(|result| drop(families.holds.with_label_values(&["commit", result])));
        let read = Arc::clone(&families);
        register_read(&registry, &READ_AT_SCRAPE.concat(), move || read.read_families())?;
        Ok(Self { registry, tags, families })
    }

    /// Renders the text exposition format.
    ///
    /// # Errors
    /// If a metric cannot be encoded.
    pub fn render(&self) -> Result<String> {
        let mut gathered = self.registry.gather();
        // The registry appends the tags as the last labels, in any order.
        for metric in gathered.iter_mut().flat_map(MetricFamily::mut_metric).filter(|_| self.tags > 1) {
            let labels = metric.mut_label();
            let own = labels.len() - self.tags;
            labels[own..].sort_unstable();
        }
        let mut text = TextEncoder::new().encode_to_string(&gathered)?;
        // The registry omits families without series. These are listed by name even before they count.
        let is_gathered = |name: &str| gathered.binary_search_by(|family| family.name().cmp(name)).is_ok();
        let missing = READ_AT_SCRAPE.into_iter().flatten().filter(|family| !is_gathered(family.name));
        text.extend(missing.map(|family| family.head()));
        Ok(text)
    }

    /// The metrics of envoyproxy/ratelimit, except the durations, under their dotted names.
    pub fn envoy_ratelimit_stats(&self) -> Vec<Stat> {
        self.families.envoy_ratelimit_stats()
    }

    /// Counts a request with this many descriptors for a domain without rules.
    pub fn domain_not_found(&self, descriptors: usize) {
        self.families.unknown_domains.inc();
        self.families.unknown_descriptors.add(descriptors as u64);
    }

    /// Looks up the counters for every limit in `rules`, which become the current rules. A limit has series from its
    /// first request on; the series of other rules are removed. Only one thread may call it at a time.
    pub fn limit_meters(&self, rules: &RuleSet) -> LimitMeters {
        self.families.pauses.bind(rules);
        self.families.limits.bind(rules, self.families.exceptions.bind(rules))
    }

    /// Counts a call of a hold.
    pub(crate) fn count_hold(&self, op: &str, result: &str) {
        self.families.holds.with_label_values(&[op, result]).inc();
    }

    pub fn requests(&self, transport: Transport) -> RequestMeter {
        self.families.requests.meter(transport)
    }

    pub fn connections(&self, port: Port) -> ConnectionMeter {
        self.families.connections.meter(port)
    }

    /// The meter of a port with TLS. A port without TLS does not have series.
    pub fn tls(&self, port: Port) -> TlsMeter {
        self.families.tls.meter(port)
    }

    pub fn tokens(&self) -> TokenMeter {
        self.families.tokens.clone()
    }
}

impl Families {
    /// Reads the families of [`READ_AT_SCRAPE`].
    fn read_families(&self) -> Vec<MetricFamily> {
        let mut families = self.limits.read_families();
        families.extend(self.exceptions.read_families());
        families.push(self.requests.response_times.read_family());
        families.extend(envoy_ratelimit::families(&self.envoy_ratelimit_stats()));
        families
    }

    fn envoy_ratelimit_stats(&self) -> Vec<Stat> {
        let [successful_rule_loads, failed_rule_loads] = self.rules.loads();
        let mut stats = Stats::default();
        add_hits(&self.limits.hits, &mut stats);
        self.requests.response_times.add_calls_to(&mut stats);
        stats.add_own(&OwnCounts {
            shadowed_requests: self.limits.shadowed.get(),
            failures: self.requests.failures(),
            successful_rule_loads,
            failed_rule_loads,
            rule_files: self.rules.files(),
            unknown_descriptors: self.unknown_descriptors.get(),
            deny_cache: self.deny_cache.as_ref().map(|read| read()),
        });
        stats.0
    }
}

/// The version, and the system's data about the process.
fn register_process(registry: &Registry) -> Result<()> {
    BUILD_INFO.register(registry, &[("version", env!("CARGO_PKG_VERSION"))], || 1)?;
    // CPU, memory, open files and threads, named as in the Prometheus clients. Only Linux has /proc.
    #[cfg(target_os = "linux")]
    registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
    Ok(())
}

/// Values read from parts at each scrape.
fn register_parts(registry: &Registry, parts: &MeteredParts, stores: &StoreFamilies) -> Result<()> {
    watch(registry, &parts.is_ready, [(READY, |is_ready| (*is_ready).into())])?;
    match parts.rules {
        Some(RulesOrigin::Files) => RULES_SOURCE.register(registry, &[("source", "file")], || 1)?,
        Some(RulesOrigin::Xds) => RULES_SOURCE.register(registry, &[("source", "xds")], || 1)?,
        None => {}
    }
    watch(registry, &parts.lost_log_lines, [(LOST_LOG_LINES, |lost| *lost)])?;
    stores::watch_stores(registry, parts)?;
    if let Some(written) = &parts.ledger {
        ledger::watch_ledger(registry, written)?;
    }
    if let Some(stats) = &parts.notices {
        notices::watch_notices(registry, stats)?;
    }
    if parts.has_per_second {
        stores.watch_group(registry, ServerGroup::PerSecond)?;
    }
    if parts.has_home {
        stores.watch_group(registry, ServerGroup::Home)?;
    }
    Ok(())
}
