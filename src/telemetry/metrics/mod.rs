//! Every metric's name, help and labels. Injected, no globals. Label values come from the rule files, from the settings
//! and from constants here, so these bound the number of series; only the metrics of envoyproxy/ratelimit have values
//! of requests, where a rule asks for them, and a bounded number. A meter holds handles that were looked up beforehand:
//! counting is a few atomic additions. The series of limits are kept apart from the registry, see `series.rs`.

mod connections;
pub(crate) mod exposition;
mod extra_tags;
mod family;
mod limits;
mod options;
mod requests;
mod response_times;
mod rules;
pub(crate) mod series;
mod stores;
#[cfg(test)]
mod tests;
mod timings;
mod tls;
mod traces;
mod xds;

use std::fmt;
use std::sync::Arc;

use engine::RuleSet;
use parking_lot::Mutex;
use prometheus::{IntCounter, Opts, Registry, Result, TextEncoder};

use crate::reference::metrics::Stats;
use connections::ConnectionFamilies;
use exposition::Exposition;
use family::{Reading, counter, pulled};
use limits::LimitFamilies;
use requests::RequestFamilies;
use rules::RuleFamilies;
use series::Count;
use stores::StoreFamilies;
use timings::timing_queue;
use tls::TlsFamilies;

pub use crate::reference::metrics::{Stat, StatKind};
pub use connections::{CloseReason, ConnectionMeter, Port};
pub use extra_tags::ExtraTags;
pub use limits::LimitMeters;
pub use options::MetricsOptions;
pub use requests::{RequestFailure, RequestMeter, Timer, Transport};
pub use response_times::ResponseTimeUnit;
pub use rules::Loaded;
pub use stores::{BatchMeter, StoreMeter};
pub use timings::{Timing, Timings};
pub use tls::{CertificateExpiry, HandshakeResult, TlsMeter};
pub use traces::TraceMeter;
pub use xds::{XdsAnswer, XdsFailure, XdsMeter};

/// All metrics of one process. Clones share the same numbers.
#[derive(Clone)]
pub struct Metrics(Arc<Families>);

struct Families {
    registry: Registry,
    /// The labels of every series that is not in the registry.
    extra_labels: String,
    limits: LimitFamilies,
    unknown_domains: IntCounter,
    /// Descriptors of requests for unknown domains.
    unknown_descriptors: Count,
    requests: RequestFamilies,
    connections: ConnectionFamilies,
    stores: StoreFamilies,
    rules: RuleFamilies,
    tls: TlsFamilies,
    deny_cache: Mutex<Option<DenyCacheReader>>,
}

/// Reads the numbers of the deny cache.
type DenyCacheReader = Box<dyn Fn() -> store::deny_cache::DenyCacheStats + Send + Sync>;

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Registers all metrics. `near_limit_ppm` is the share of a limit, in millionths, above which a hit counts as near
    /// it; all else is by default.
    ///
    /// # Errors
    /// When two metrics have the same name.
    pub fn new(near_limit_ppm: u32) -> Result<Self> {
        Self::with_options(&MetricsOptions { near_limit_ppm, ..MetricsOptions::default() })
    }

    /// Registers all metrics.
    ///
    /// # Errors
    /// When two metrics have the same name.
    pub fn with_options(options: &MetricsOptions) -> Result<Self> {
        Self::build(options, false).map(|(metrics, _)| metrics)
    }

    /// As [`Metrics::with_options`], with a queue of the durations for statsd.
    ///
    /// # Errors
    /// As [`Metrics::with_options`].
    pub fn with_timings(options: &MetricsOptions) -> Result<(Self, Timings)> {
        Self::build(options, true)
    }

    fn build(options: &MetricsOptions, has_statsd: bool) -> Result<(Self, Timings)> {
        let registry =
            Registry::new_custom(None, Some(options.extra_tags.label_pairs().into_iter().collect()))?;
        let build = Opts::new("ratelimitd_build_info", "Always 1; the label is the version")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        pulled(&registry, build, || Reading::Gauge(1))?;
        // CPU, memory, open files and threads under the names of the Prometheus clients. Only Linux has /proc.
        #[cfg(target_os = "linux")]
        registry.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let lost = counter(
            &registry,
            "ratelimitd_statsd_lost_lines_total",
            "Lines for statsd that were not sent: it is not reached, or it is too slow",
        )?;
        let (queue, timings) = timing_queue(&lost);
        let queue = has_statsd.then_some(queue);
        let families = Families {
            extra_labels: options.extra_tags.exposed(),
            limits: LimitFamilies::new(&registry, options.near_limit_ppm, options.values_per_rule)?,
            unknown_domains: counter(
                &registry,
                "ratelimitd_unknown_domain_total",
                "Requests for a domain that no rule file names",
            )?,
            unknown_descriptors: Count::default(),
            requests: RequestFamilies::new(&registry, options, queue)?,
            connections: ConnectionFamilies::new(&registry)?,
            stores: StoreFamilies::new(&registry)?,
            rules: RuleFamilies::new(&registry)?,
            tls: TlsFamilies::new(&registry)?,
            deny_cache: Mutex::default(),
            registry,
        };
        Ok((Self(Arc::new(families)), timings))
    }

    /// The text exposition format.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn render(&self) -> Result<String> {
        let text = TextEncoder::new().encode_to_string(&self.0.registry.gather())?;
        let mut exposition = Exposition::new(text, &self.0.extra_labels);
        self.0.limits.write(&mut exposition);
        self.0.requests.write(&mut exposition);
        crate::reference::metrics::write(&self.envoy_ratelimit_stats(), &mut exposition);
        Ok(exposition.into_text())
    }

    /// The metrics of envoyproxy/ratelimit, but for the durations, under their dotted names.
    #[must_use]
    pub fn envoy_ratelimit_stats(&self) -> Vec<Stat> {
        let mut stats = Stats::default();
        let families = &self.0;
        families.limits.add_to(&mut stats);
        families.requests.add_to(&mut stats);
        families.rules.add_to(&mut stats);
        let name = "ratelimit.service.rate_limit.domain_not_found";
        stats.counter(name, families.unknown_descriptors.get());
        if let Some(read) = families.deny_cache.lock().as_ref() {
            stores::add_deny_cache(&read(), &mut stats);
        }
        stats.into_vec()
    }

    /// Counts a request with this many descriptors for a domain without rules.
    pub fn domain_not_found(&self, descriptors: usize) {
        self.0.unknown_domains.inc();
        self.0.unknown_descriptors.add(descriptors as u64);
    }

    /// Looks up the counters of every limit of `rules`, the new rules in force. A limit has series from its first
    /// request on; the series of other rules are removed. Only one thread may call it at a time.
    #[must_use]
    pub fn limit_meters(&self, rules: &RuleSet) -> LimitMeters {
        self.0.limits.bind(rules)
    }

    #[must_use]
    pub fn requests(&self, transport: Transport) -> RequestMeter {
        self.0.requests.meter(transport)
    }

    /// The meter of one port's connections.
    #[must_use]
    pub fn connections(&self, port: Port) -> ConnectionMeter {
        self.0.connections.meter(port)
    }

    /// The meter of a port with TLS. A port without TLS has no series.
    #[must_use]
    pub fn tls(&self, port: Port) -> TlsMeter {
        self.0.tls.meter(port)
    }

    /// The meter of one store's decisions. `store` is its name in the settings.
    #[must_use]
    pub fn store(&self, store: &'static str) -> StoreMeter {
        self.0.stores.meter(store)
    }

    /// The meter of one worker's script calls to Redis.
    #[must_use]
    pub fn batches(&self) -> BatchMeter {
        self.0.stores.batches()
    }

    /// Registers the metrics of Redis servers that have the counters of limits of one second. Call it once.
    ///
    /// # Errors
    /// When it was called before.
    pub fn watch_per_second(&self) -> Result<()> {
        self.0.stores.watch_per_second(&self.0.registry)
    }

    /// Like [`batches`](Self::batches), of the servers for limits of one second.
    #[must_use]
    pub fn per_second_batches(&self) -> BatchMeter {
        self.0.stores.per_second_batches()
    }

    /// Registers the keys and evictions of the memory store. Call it once.
    ///
    /// # Errors
    /// When it was called before.
    pub fn watch_memory(
        &self,
        stats: impl Fn() -> store::memory::MemoryStats + Send + Sync + 'static,
    ) -> Result<()> {
        stores::watch_memory(&self.0.registry, stats)
    }

    /// Registers the keys and hits of the deny cache. Call it once.
    ///
    /// # Errors
    /// When it was called before.
    pub fn watch_deny_cache(
        &self,
        stats: impl Fn() -> store::deny_cache::DenyCacheStats + Clone + Send + Sync + 'static,
    ) -> Result<()> {
        stores::watch_deny_cache(&self.0.registry, stats.clone())?;
        *self.0.deny_cache.lock() = Some(Box::new(stats));
        Ok(())
    }

    /// Registers the number of lost log lines. Call it once.
    ///
    /// # Errors
    /// When it was called before.
    pub fn watch_log(&self, lost: impl Fn() -> u64 + Send + Sync + 'static) -> Result<()> {
        let options = Opts::new(
            "ratelimitd_log_lines_lost_total",
            "Log lines that were not written: the log is full, its reader is gone or too slow",
        );
        pulled(&self.0.registry, options, move || Reading::Counter(lost()))
    }

    /// Registers the metrics of the client of an xDS server. Call it once.
    ///
    /// # Errors
    /// When it was called before.
    pub fn xds(&self) -> Result<XdsMeter> {
        XdsMeter::new(&self.0.registry)
    }

    /// Registers the numbers of spans. Call it once.
    ///
    /// # Errors
    /// When it was called before.
    pub fn traces(&self) -> Result<TraceMeter> {
        TraceMeter::new(&self.0.registry)
    }

    /// Registers the source of the rules. Call it once.
    ///
    /// # Errors
    /// When it was called before.
    pub fn rules_source(&self, source: &'static str) -> Result<()> {
        let options =
            Opts::new("ratelimitd_rules_source_info", "Always 1; the label is where the rules come from")
                .const_label("source", source);
        pulled(&self.0.registry, options, || Reading::Gauge(1))
    }

    /// Counts a successful load of rules.
    pub fn rules_loaded(&self, loaded: Loaded) {
        self.0.rules.loaded(loaded);
    }

    /// Counts a load of rules that failed.
    pub fn rules_failed(&self) {
        self.0.rules.failed();
    }
}
