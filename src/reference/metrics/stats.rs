//! The current values of all metrics, under their dotted names.

use store::deny_cache::DenyCacheStats;

use super::hits::RuleHitsTable;
use crate::telemetry::metrics::RequestFailure;

/// The value of one metric under its dotted name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub name: String,
    pub kind: StatKind,
    pub value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatKind {
    /// The sum since the start.
    Counter,
    Gauge,
}

impl StatKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

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
    stats.0
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

#[derive(Debug, Default)]
pub(super) struct Stats(Vec<Stat>);

impl Stats {
    /// Adds a counter. Like in envoyproxy/ratelimit, it exists from its first count on.
    pub(super) fn counter(&mut self, name: impl Into<String>, value: u64) {
        if value > 0 {
            self.0.push(Stat { name: name.into(), kind: StatKind::Counter, value });
        }
    }

    fn gauge(&mut self, name: impl Into<String>, value: u64) {
        self.0.push(Stat { name: name.into(), kind: StatKind::Gauge, value });
    }
}

/// A path as it stands in a dotted name: without the separators of statsd, and an address of IPv4 is one level.
pub(super) fn stat_name(path: &str) -> String {
    with_flat_addresses(&path.replace([':', '|'], "_"))
}

/// Replaces the dots of IPv4 addresses by underscores. Any four groups of one to three digits count as an address.
fn with_flat_addresses(text: &str) -> String {
    let mut flat = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = address_length(rest.as_bytes()).unwrap_or(0);
        let (part, after) = rest.split_at(length.max(first.len_utf8()));
        if length > 0 {
            flat.push_str(&part.replace('.', "_"));
        } else {
            flat.push_str(part);
        }
        rest = after;
    }
    flat
}

/// The length of the address at the start of the text.
fn address_length(text: &[u8]) -> Option<usize> {
    let mut end = 0;
    for group in 0..4 {
        if group > 0 {
            end += text.get(end).filter(|&&byte| byte == b'.').map(|_| 1)?;
        }
        match text[end..].iter().take(3).take_while(|byte| byte.is_ascii_digit()).count() {
            0 => return None,
            digits => end += digits,
        }
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_and_addresses_in_a_path_become_underscores() {
        let cases = [
            ("shop.remote_address_50.0.0.5", "shop.remote_address_50_0_0_5"),
            ("d.a_1.2.3.4.b_5.6.7.8", "d.a_1_2_3_4.b_5_6_7_8"),
            ("10.0.0.1.net_10.0.0.0/8", "10_0_0_1.net_10_0_0_0/8"),
            ("a_1.2.3.4.5", "a_1_2_3_4.5"),
            ("shop/eu:1.x|y=z#t,u", "shop/eu_1.x_y=z#t,u"),
            ("d.ip_2001:db8::1", "d.ip_2001_db8__1"),
            // No addresses.
            ("v1.2.path", "v1.2.path"),
            ("a_1.2.3", "a_1.2.3"),
            ("api.example.com", "api.example.com"),
            ("é1.2.3.", "é1.2.3."),
            ("", ""),
        ];
        for (path, name) in cases {
            assert_eq!(stat_name(path), name);
        }
    }
}
