//! Every metric's name, help and labels. Injected, no globals. Labels come from the rule files and from lists fixed
//! here, so the number of series is bounded by what operators wrote. Whoever counts holds handles that were looked up
//! beforehand: counting is a few atomic additions.

mod family;
mod limits;
mod reference;
mod requests;
mod rules;
mod stores;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use prometheus::{IntCounter, Opts, Registry, Result, TextEncoder};

use crate::engine::RuleSet;

use family::{Reading, counter, pulled};
use limits::LimitFamilies;
use requests::RequestFamilies;
use rules::RuleFamilies;
use stores::StoreFamilies;

pub use limits::LimitMeters;
pub use requests::{RequestMeter, Timer, Transport};
pub use rules::Loaded;
pub use stores::{BatchMeter, StoreMeter};

/// All metrics of one process. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Families>);

#[derive(Debug)]
struct Families {
    registry: Registry,
    limits: LimitFamilies,
    unknown_domains: IntCounter,
    requests: RequestFamilies,
    stores: StoreFamilies,
    rules: RuleFamilies,
}

impl Metrics {
    /// Registers everything. `near_limit_ppm` is the share of a limit, in millionths, above which a hit counts as near
    /// it.
    ///
    /// # Errors
    /// When two metrics have one name.
    pub fn new(near_limit_ppm: u32) -> Result<Self> {
        let registry = Registry::new();
        let build = Opts::new("ratelimitd_build_info", "Always 1; the labels say what runs")
            .const_label("version", env!("CARGO_PKG_VERSION"));
        pulled(&registry, build, || Reading::Gauge(1))?;
        Ok(Self(Arc::new(Families {
            limits: LimitFamilies::new(&registry, near_limit_ppm)?,
            unknown_domains: counter(
                &registry,
                "ratelimitd_unknown_domain_total",
                "Requests for a domain that no rule file names",
            )?,
            requests: RequestFamilies::new(&registry)?,
            stores: StoreFamilies::new(&registry)?,
            rules: RuleFamilies::new(&registry)?,
            registry,
        })))
    }

    /// The text exposition format.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn render(&self) -> Result<String> {
        TextEncoder::new().encode_to_string(&self.0.registry.gather())
    }

    /// Counts a request for a domain without rules.
    pub fn domain_not_found(&self) {
        self.0.unknown_domains.inc();
    }

    /// Looks up the counters of every limit of `rules`, which from then on are the rules in force: a series for each of
    /// them exists, and those of other rules end.
    #[must_use]
    pub fn limit_meters(&self, rules: &RuleSet) -> LimitMeters {
        self.0.limits.bind(rules)
    }

    /// What one transport counts of its requests.
    #[must_use]
    pub fn requests(&self, transport: Transport) -> RequestMeter {
        self.0.requests.meter(transport)
    }

    /// What is counted of one store's decisions. `store` is its name in the settings.
    #[must_use]
    pub fn store(&self, store: &'static str) -> StoreMeter {
        self.0.stores.meter(store)
    }

    /// What one worker counts of the script calls it sends to Redis.
    #[must_use]
    pub fn batches(&self) -> BatchMeter {
        self.0.stores.batches()
    }

    /// Shows the keys and evictions of the process's memory store. To be called once.
    ///
    /// # Errors
    /// When there is one already.
    pub fn watch_memory(
        &self,
        stats: impl Fn() -> crate::store::memory::MemoryStats + Send + Sync + 'static,
    ) -> Result<()> {
        stores::watch_memory(&self.0.registry, stats)
    }

    /// Shows what the process's deny cache holds and saves. To be called once.
    ///
    /// # Errors
    /// When there is one already.
    pub fn watch_deny_cache(
        &self,
        stats: impl Fn() -> crate::store::deny_cache::DenyCacheStats + Send + Sync + 'static,
    ) -> Result<()> {
        stores::watch_deny_cache(&self.0.registry, stats)
    }

    /// Counts rules that were put in force.
    pub fn rules_loaded(&self, loaded: Loaded) {
        self.0.rules.loaded(loaded);
    }

    /// Counts rules that were refused; those before them stay in force.
    pub fn rules_refused(&self) {
        self.0.rules.refused();
    }
}
