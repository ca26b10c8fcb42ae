//! The numbers of the service that envoyproxy/ratelimit shows, too, under its dotted names.

use store::deny_cache::DenyCacheStats;

use super::hits::RuleHitsTable;
use super::stats::{Stat, Stats};
use crate::telemetry::metrics::RequestFailure;

/// The numbers of the service that envoyproxy/ratelimit shows, too.
#[derive(Debug)]
pub(crate) struct Readings<'m> {
    pub(crate) hits: &'m RuleHitsTable,
    /// Requests over their limit that `shadow_mode` of the settings admitted.
    pub(crate) shadowed: u64,
    /// Requests without a decision, by reason.
    pub(crate) failures: [(RequestFailure, u64); RequestFailure::ALL.len()],
    /// Calls by gRPC method.
    pub(crate) calls: [(&'static str, u64); 2],
    /// Successful and failed loads of rules.
    pub(crate) loads: [u64; 2],
    /// Files of the rules in force.
    pub(crate) files: u64,
    /// Descriptors of requests for unknown domains.
    pub(crate) unknown_descriptors: u64,
    /// The numbers of the deny cache, if there is one.
    pub(crate) deny_cache: Option<DenyCacheStats>,
}

/// The values of all metrics, but for the durations.
pub(crate) fn stats(readings: &Readings<'_>) -> Vec<Stat> {
    let mut stats = Stats::default();
    readings.hits.add_to(&mut stats);
    stats.counter("ratelimit.service.global_shadow_mode", readings.shadowed);
    for error in ["service_error", "redis_error"] {
        let failures = readings.failures.iter().filter(|(failure, _)| error_type(*failure) == error);
        let name = format!("ratelimit.service.call.should_rate_limit.{error}");
        stats.counter(name, failures.map(|(_, requests)| requests).sum());
    }
    for (method, calls) in readings.calls {
        stats.counter(format!("ratelimit_server.{method}.total_requests"), calls);
    }
    let [succeeded, failed] = readings.loads;
    stats.counter("ratelimit.service.config_load_success", succeeded);
    stats.counter("ratelimit.service.config_load_error", failed);
    stats.counter("runtime.load_attempts", succeeded + failed);
    stats.gauge("runtime.num_values", readings.files);
    stats.counter("ratelimit.service.rate_limit.domain_not_found", readings.unknown_descriptors);
    if let Some(cache) = readings.deny_cache {
        stats.gauge("ratelimit.localcache.entryCount", cache.keys);
        stats.gauge("ratelimit.localcache.lookupCount", cache.lookups);
        stats.gauge("ratelimit.localcache.hitCount", cache.found);
        stats.gauge("ratelimit.localcache.missCount", cache.lookups.saturating_sub(cache.found));
    }
    stats.into_vec()
}

/// The name that envoyproxy/ratelimit has for the reason of a failure.
fn error_type(failure: RequestFailure) -> &'static str {
    match failure {
        RequestFailure::Store => "redis_error",
        RequestFailure::Invalid
        | RequestFailure::Incomplete
        | RequestFailure::Overloaded
        | RequestFailure::Untaken
        | RequestFailure::NoRules
        | RequestFailure::Deadline
        | RequestFailure::Panic => "service_error",
    }
}
