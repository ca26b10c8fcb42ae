//! Names the counts that envoyproxy/ratelimit also exports: dotted names for statsd, and the Prometheus families and
//! labels to which its default mapping translates them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use prometheus::proto::{MetricFamily, MetricType};
use regex::{Captures, Regex};
use store::deny_cache::DenyCacheStats;

use crate::telemetry::metrics::RequestFailure;
use crate::telemetry::metrics::family::{ReadFamily, add_series, empty_family, metric_name};

/// A metric's value under its dotted name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub name: String,
    pub kind: StatKind,
    pub value: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatKind {
    /// Total since startup.
    Counter,
    Gauge,
}

#[derive(Debug, Default)]
pub(crate) struct Stats(pub(crate) Vec<Stat>);

/// The service's own counts that envoyproxy/ratelimit also has.
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
            let failures = RequestFailure::ALL.iter().copied().zip(counts.failures);
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

    /// Adds a counter. As in envoyproxy/ratelimit, it exists from its first count on.
    pub(crate) fn counter(&mut self, name: impl Into<String>, value: u64) {
        if value > 0 {
            self.0.push(Stat { name: name.into(), kind: StatKind::Counter, value });
        }
    }

    pub(crate) fn gauge(&mut self, name: impl Into<String>, value: u64) {
        self.0.push(Stat { name: name.into(), kind: StatKind::Gauge, value });
    }
}

/// Returns envoyproxy/ratelimit's name for a failure.
fn error_type(failure: RequestFailure) -> &'static str {
    match failure {
        RequestFailure::Store => "redis_error",
        RequestFailure::Invalid
        | RequestFailure::Incomplete
        | RequestFailure::Overloaded
        | RequestFailure::Untaken
        | RequestFailure::NoRules
        | RequestFailure::Unauthenticated
        | RequestFailure::Forbidden
        | RequestFailure::Deadline
        | RequestFailure::Panic => "service_error",
    }
}

/// An IPv4 address. Any four groups of one to three digits count as one.
static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}").expect("the pattern is a constant"));

/// Returns a path as part of a dotted name: without statsd's separators, and with an IPv4 address as one level.
pub(crate) fn stat_name(path: &str) -> String {
    let path = path.replace([':', '|'], "_");
    ADDRESS.replace_all(&path, |address: &Captures<'_>| address[0].replace('.', "_")).into_owned()
}

/// Families with fixed names.
pub(crate) const FAMILIES: [ReadFamily; 17] = [
    ReadFamily::counter(
        "ratelimit_service_rate_limit_total_hits",
        "Hits, including those of requests without a decision",
    ),
    ReadFamily::counter("ratelimit_service_rate_limit_over_limit", "Hits over the limit"),
    ReadFamily::counter(
        "ratelimit_service_rate_limit_near_limit",
        "Hits above near_limit_ratio of the limit and not over it",
    ),
    ReadFamily::counter(
        "ratelimit_service_rate_limit_within_limit",
        "Hits of requests that were not over the limit",
    ),
    ReadFamily::counter("ratelimit_service_rate_limit_shadow_mode", "Hits over the limit of a shadow rule"),
    ReadFamily::counter(
        "ratelimit_service_rate_limit_domain_not_found",
        "Descriptors of requests for domains without rules",
    ),
    ReadFamily::counter(
        "ratelimit_service_global_shadow_mode",
        "Requests over their limit admitted by the setting shadow_mode",
    ),
    ReadFamily::counter("ratelimit_service_should_rate_limit_error", "Requests answered with an error"),
    ReadFamily::counter("ratelimit_service_total_requests", "Calls by gRPC method"),
    ReadFamily::counter("ratelimit_service_config_load_success", "Successful loads of rules"),
    ReadFamily::counter("ratelimit_service_config_load_error", "Failed loads of rules"),
    ReadFamily::counter("runtime_load_attempts", "Loads of rules"),
    ReadFamily::gauge("runtime_num_values", "Files of the active rules"),
    ReadFamily::gauge("ratelimit_localcache_entryCount", "Denials in the deny cache"),
    ReadFamily::gauge("ratelimit_localcache_hitCount", "Limits denied by the deny cache"),
    ReadFamily::gauge("ratelimit_localcache_lookupCount", "Limits looked up in the deny cache"),
    ReadFamily::gauge("ratelimit_localcache_missCount", "Limits looked up and not found in the deny cache"),
];

/// Prefix of the dotted names of a rule's counters.
const RULE_PREFIX: &str = "ratelimit.service.rate_limit.";
/// Counters of rules in the mapping. All others keep their dotted names, with underscores.
const RULE_COUNTERS: [&str; 5] = ["total_hits", "over_limit", "near_limit", "within_limit", "shadow_mode"];

type Labels<'s> = Vec<(&'static str, &'s str)>;

/// Converts the values to families. Series with equal labels are summed.
pub(crate) fn families(stats: &[Stat]) -> Vec<MetricFamily> {
    let mut by_family = BTreeMap::new();
    for stat in stats {
        let (name, labels) = mapped(&stat.name);
        let (_, series) = by_family.entry(name).or_insert_with(|| (stat.kind, Vec::new()));
        series.push((labels, stat.value));
    }
    let mut families = Vec::with_capacity(by_family.len());
    for (name, (kind, mut series)) in by_family {
        let mut family = family_named(&name, kind);
        series.sort_unstable();
        for same in series.chunk_by(|(a, _), (b, _)| a == b) {
            add_series(&mut family, &same[0].0, same.iter().map(|(_, value)| value).sum());
        }
        families.push(family);
    }
    families
}

/// Returns a family without series. `kind` is used for families that are not in the mapping.
fn family_named(name: &str, kind: StatKind) -> MetricFamily {
    if let Some(known) = FAMILIES.iter().find(|known| known.name == name) {
        return known.empty();
    }
    let kind = match kind {
        StatKind::Counter => MetricType::COUNTER,
        StatKind::Gauge => MetricType::GAUGE,
    };
    empty_family(name, kind, "Metric of envoyproxy/ratelimit without a mapping")
}

/// Returns the family and labels of a dotted name.
fn mapped(name: &str) -> (Cow<'_, str>, Labels<'_>) {
    if let Some(found) = name.strip_prefix(RULE_PREFIX).and_then(mapped_rule) {
        return found;
    }
    if let Some(error) = name.strip_prefix("ratelimit.service.call.should_rate_limit.") {
        return (Cow::Borrowed("ratelimit_service_should_rate_limit_error"), vec![("err_type", error)]);
    }
    let method = name.strip_prefix("ratelimit_server.").and_then(|rest| rest.strip_suffix(".total_requests"));
    if let Some(method) = method {
        return (Cow::Borrowed("ratelimit_service_total_requests"), vec![("grpc_method", method)]);
    }
    (Cow::Owned(metric_name(name)), Vec::new())
}

/// The first level of a path is the domain, the next two are keys; deeper levels do not become labels. Neither do empty
/// ones, because for Prometheus an empty label is none.
fn mapped_rule(below: &str) -> Option<(Cow<'_, str>, Labels<'_>)> {
    let (path, counter) = below.rsplit_once('.')?;
    let at = RULE_COUNTERS.iter().position(|known| *known == counter)?;
    let mut levels = path.split('.');
    let mut labels = vec![("domain", levels.next()?), ("key1", levels.next()?)];
    labels.extend(levels.next().map(|key2| ("key2", key2)));
    labels.retain(|(_, level)| !level.is_empty());
    // In the order of `RULE_COUNTERS`: a test compares them.
    Some((Cow::Borrowed(FAMILIES[at].name), labels))
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
            // Not addresses.
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
                "domain=shop,key1=user",
            ),
            (
                "ratelimit.service.rate_limit.my.shop.user.method_GET.near_limit",
                "ratelimit_service_rate_limit_near_limit",
                "domain=my,key1=shop,key2=user",
            ),
            (
                "ratelimit.service.rate_limit.shop.user..total_hits",
                "ratelimit_service_rate_limit_total_hits",
                "domain=shop,key1=user",
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
                "err_type=redis_error",
            ),
            (
                "ratelimit_server.Check.total_requests",
                "ratelimit_service_total_requests",
                "grpc_method=Check",
            ),
            ("ratelimit.service.config_load_success", "ratelimit_service_config_load_success", ""),
            ("ratelimit.localcache.hitCount", "ratelimit_localcache_hitCount", ""),
            ("a/b.é c", "a_b___c", ""),
        ];
        for (name, family, expected) in cases {
            let (found, labels) = mapped(name);
            let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!((&*found, &*labels.join(",")), (family, expected), "{name}");
        }
    }

    #[test]
    fn series_with_the_same_labels_are_summed() {
        let stat = |name: &str, value| Stat { name: name.to_owned(), kind: StatKind::Counter, value };
        let below = "ratelimit.service.rate_limit.shop.a.b";
        let stats = [3, 4].map(|value| stat(&format!("{below}.level{value}.total_hits"), value));
        let families = families(&stats);
        assert_eq!(families.len(), 1);
        let values: Vec<_> =
            families[0].get_metric().iter().map(|one| one.get_counter().get_value()).collect();
        assert_eq!(values, [7.0]);
    }

    #[test]
    fn the_first_families_are_the_counters_of_rules() {
        for (counter, family) in RULE_COUNTERS.iter().zip(FAMILIES) {
            assert_eq!(family.name, format!("ratelimit_service_rate_limit_{counter}"));
        }
    }
}
