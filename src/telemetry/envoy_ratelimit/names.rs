//! The numbers of the service that envoyproxy/ratelimit shows, too: under its dotted names, which statsd gets, and as
//! the families and labels of Prometheus to which its default mapping translates these names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use store::deny_cache::DenyCacheStats;

use crate::telemetry::metrics::RequestFailure;
use crate::telemetry::metrics::series::{Exposition, labels};

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
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Stats(pub(crate) Vec<Stat>);

/// What the service counts for itself and envoyproxy/ratelimit counts, too.
pub(crate) struct OwnCounts {
    pub(crate) shadowed_requests: u64,
    /// In the order of [`RequestFailure::ALL`].
    pub(crate) failures: [u64; RequestFailure::ALL.len()],
    pub(crate) successful_rule_loads: u64,
    pub(crate) failed_rule_loads: u64,
    pub(crate) rule_files: u64,
    /// Descriptors of requests for domains without rules.
    pub(crate) unknown_descriptors: u64,
    pub(crate) deny_cache: Option<DenyCacheStats>,
}

impl Stats {
    pub(crate) fn add_own(&mut self, counts: &OwnCounts) {
        self.counter("ratelimit.service.global_shadow_mode", counts.shadowed_requests);
        for error in ["service_error", "redis_error"] {
            let failures = RequestFailure::ALL.into_iter().zip(counts.failures);
            let failures = failures.filter(|&(failure, _)| error_type(failure) == error);
            let name = format!("ratelimit.service.call.should_rate_limit.{error}");
            self.counter(name, failures.map(|(_, requests)| requests).sum());
        }
        self.counter("ratelimit.service.config_load_success", counts.successful_rule_loads);
        self.counter("ratelimit.service.config_load_error", counts.failed_rule_loads);
        self.counter("runtime.load_attempts", counts.successful_rule_loads + counts.failed_rule_loads);
        self.gauge("runtime.num_values", counts.rule_files);
        self.counter("ratelimit.service.rate_limit.domain_not_found", counts.unknown_descriptors);
        if let Some(cache) = &counts.deny_cache {
            self.gauge("ratelimit.localcache.entryCount", cache.keys);
            self.gauge("ratelimit.localcache.lookupCount", cache.lookups);
            self.gauge("ratelimit.localcache.hitCount", cache.found);
            self.gauge("ratelimit.localcache.missCount", cache.lookups.saturating_sub(cache.found));
        }
    }

    /// Adds a counter. Like in envoyproxy/ratelimit, it exists from its first count on.
    pub(crate) fn counter(&mut self, name: impl Into<String>, value: u64) {
        if value > 0 {
            self.0.push(Stat { name: name.into(), kind: StatKind::Counter, value });
        }
    }

    pub(crate) fn gauge(&mut self, name: impl Into<String>, value: u64) {
        self.0.push(Stat { name: name.into(), kind: StatKind::Gauge, value });
    }
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
pub(crate) fn stat_name(path: &str) -> String {
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

/// The families with fixed names: name, kind, help.
const FAMILIES: [(&str, StatKind, &str); 17] = [
    counter("ratelimit_service_rate_limit_total_hits", "Hits, also of requests that were not decided"),
    counter("ratelimit_service_rate_limit_over_limit", "Hits over the limit"),
    counter(
        "ratelimit_service_rate_limit_near_limit",
        "Hits above near_limit_ratio of the limit and not over it",
    ),
    counter("ratelimit_service_rate_limit_within_limit", "Hits of requests that were not over the limit"),
    counter("ratelimit_service_rate_limit_shadow_mode", "Hits over the limit of a shadow rule"),
    counter(
        "ratelimit_service_rate_limit_domain_not_found",
        "Descriptors of requests for domains that no rule file names",
    ),
    counter(
        "ratelimit_service_global_shadow_mode",
        "Requests over their limit that shadow_mode of the settings admitted",
    ),
    counter("ratelimit_service_should_rate_limit_error", "Requests answered with an error"),
    counter("ratelimit_service_total_requests", "Calls by gRPC method"),
    counter("ratelimit_service_config_load_success", "Loads of rules that succeeded"),
    counter("ratelimit_service_config_load_error", "Loads of rules that failed"),
    counter("runtime_load_attempts", "Loads of rules"),
    gauge("runtime_num_values", "Files of the rules in force"),
    gauge("ratelimit_localcache_entryCount", "Denials in the deny cache"),
    gauge("ratelimit_localcache_hitCount", "Limits that the deny cache denied"),
    gauge("ratelimit_localcache_lookupCount", "Limits that were looked up in the deny cache"),
    gauge("ratelimit_localcache_missCount", "Limits that were looked up and not found in the deny cache"),
];

const fn counter(name: &'static str, help: &'static str) -> (&'static str, StatKind, &'static str) {
    (name, StatKind::Counter, help)
}

const fn gauge(name: &'static str, help: &'static str) -> (&'static str, StatKind, &'static str) {
    (name, StatKind::Gauge, help)
}

/// The prefix of the dotted names of a rule's counters.
const RULE_PREFIX: &str = "ratelimit.service.rate_limit.";
/// The counters of rules that the mapping knows. Others keep their dotted names, with underscores.
const RULE_COUNTERS: [&str; 5] = ["total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"];

/// The series of one family: its kind, and its values by labels.
type FamilySeries = (StatKind, BTreeMap<String, u64>);

/// Writes the values. Series with the same labels are summed.
pub(crate) fn write_families(stats: &[Stat], exposition: &mut Exposition<'_>) {
    let mut families: BTreeMap<Cow<'_, str>, FamilySeries> = BTreeMap::new();
    for (name, kind, _) in FAMILIES {
        families.insert(Cow::Borrowed(name), (kind, BTreeMap::new()));
    }
    for stat in stats {
        let (family, labels) = mapped(&stat.name);
        let (_, series) = families.entry(family).or_insert_with(|| (stat.kind, BTreeMap::new()));
        *series.entry(labels).or_default() += stat.value;
    }
    for (name, (kind, series)) in families {
        let known = FAMILIES.iter().find(|(known, ..)| *known == name);
        let help =
            known.map_or("A metric of envoyproxy/ratelimit that its mapping does not know", |known| known.2);
        exposition.family(&name, kind.name(), help);
        for (labels, value) in series {
            exposition.sample(&name, &labels, value);
        }
    }
}

/// The family and the labels of a dotted name.
fn mapped(name: &str) -> (Cow<'_, str>, String) {
    if let Some(found) = name.strip_prefix(RULE_PREFIX).and_then(mapped_rule) {
        return found;
    }
    if let Some(error) = name.strip_prefix("ratelimit.service.call.should_rate_limit.") {
        return (Cow::Borrowed("ratelimit_service_should_rate_limit_error"), labels(&[("err_type", error)]));
    }
    let method = name.strip_prefix("ratelimit_server.").and_then(|rest| rest.strip_suffix(".total_requests"));
    if let Some(method) = method {
        return (Cow::Borrowed("ratelimit_service_total_requests"), labels(&[("grpc_method", method)]));
    }
    (Cow::Owned(escaped(name)), String::new())
}

/// The first level of a path is the domain, the next two are keys; deeper levels have no label.
fn mapped_rule(below: &str) -> Option<(Cow<'_, str>, String)> {
    let (path, counter) = below.rsplit_once('.')?;
    let at = RULE_COUNTERS.iter().position(|known| *known == counter)?;
    let mut levels = path.split('.');
    let (domain, key1) = (levels.next()?, levels.next()?);
    let labels = match levels.next() {
        None => labels(&[("domain", domain), ("key1", key1)]),
        Some(key2) => labels(&[("domain", domain), ("key1", key1), ("key2", key2)]),
    };
    // The same order as in `RULE_COUNTERS`: a test compares them.
    Some((Cow::Borrowed(FAMILIES[at].0), labels))
}

/// A dotted name as the name of a family.
fn escaped(name: &str) -> String {
    name.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_', "_")
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

    #[test]
    fn dotted_names_become_families_and_labels() {
        let cases = [
            (
                "ratelimit.service.rate_limit.shop.user.total_hits",
                "ratelimit_service_rate_limit_total_hits",
                r#"domain="shop",key1="user""#,
            ),
            (
                "ratelimit.service.rate_limit.my.shop.user.method_GET.near_limit",
                "ratelimit_service_rate_limit_near_limit",
                r#"domain="my",key1="shop",key2="user""#,
            ),
            (
                "ratelimit.service.rate_limit.shop.total_hits",
                "ratelimit_service_rate_limit_shop_total_hits",
                "",
            ),
            (
                "ratelimit.service.rate_limit.shop.user.over_limit_with_local_cache",
                "ratelimit_service_rate_limit_shop_user_over_limit_with_local_cache",
                "",
            ),
            (
                "ratelimit.service.call.should_rate_limit.redis_error",
                "ratelimit_service_should_rate_limit_error",
                r#"err_type="redis_error""#,
            ),
            (
                "ratelimit_server.Check.total_requests",
                "ratelimit_service_total_requests",
                r#"grpc_method="Check""#,
            ),
            ("ratelimit.service.config_load_success", "ratelimit_service_config_load_success", ""),
            ("ratelimit.localcache.hitCount", "ratelimit_localcache_hitCount", ""),
            ("a/b.é c", "a_b___c", ""),
        ];
        for (name, family, expected) in cases {
            assert_eq!(mapped(name), (family.into(), expected.to_owned()), "{name}");
        }
    }

    #[test]
    fn the_first_families_are_the_counters_of_rules() {
        for (counter, (family, ..)) in RULE_COUNTERS.iter().zip(FAMILIES) {
            assert_eq!(family, format!("ratelimit_service_rate_limit_{counter}"));
        }
    }
}
