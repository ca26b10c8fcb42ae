//! The numbers of the service that envoyproxy/ratelimit shows, too, under its dotted names, which statsd gets.

use super::{Families, RequestFailure};

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

/// Collects values.
#[derive(Debug, Default)]
pub(super) struct Stats(Vec<Stat>);

impl Stats {
    /// Adds a counter. Like in envoyproxy/ratelimit, it exists from its first count on.
    pub(super) fn counter(&mut self, name: impl Into<String>, value: u64) {
        if value > 0 {
            self.0.push(Stat { name: name.into(), kind: StatKind::Counter, value });
        }
    }

    pub(super) fn gauge(&mut self, name: impl Into<String>, value: u64) {
        self.0.push(Stat { name: name.into(), kind: StatKind::Gauge, value });
    }
}

/// The values of all metrics of envoyproxy/ratelimit, but for the durations.
pub(super) fn stats(families: &Families) -> Vec<Stat> {
    let mut stats = Stats::default();
    families.limits.hits().add_to(&mut stats);
    stats.counter("ratelimit.service.global_shadow_mode", families.limits.shadowed());
    for error in ["service_error", "redis_error"] {
        let failures = RequestFailure::ALL.into_iter().filter(|failure| error_type(*failure) == error);
        let name = format!("ratelimit.service.call.should_rate_limit.{error}");
        stats.counter(name, failures.map(|failure| families.requests.failures(failure)).sum());
    }
    for (method, calls) in families.requests.calls() {
        stats.counter(format!("ratelimit_server.{method}.total_requests"), calls);
    }
    let [succeeded, failed] = families.rules.loads();
    stats.counter("ratelimit.service.config_load_success", succeeded);
    stats.counter("ratelimit.service.config_load_error", failed);
    stats.counter("runtime.load_attempts", succeeded + failed);
    stats.gauge("runtime.num_values", families.rules.files());
    stats.counter("ratelimit.service.rate_limit.domain_not_found", families.unknown_descriptors.get());
    if let Some(cache) = families.deny_cache.as_ref().map(|read| read()) {
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
