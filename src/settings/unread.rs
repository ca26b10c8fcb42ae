//! Variables of the environment that look like settings and are not read: those of envoyproxy/ratelimit, and misspelled
//! names of ours. An operator who sets one expects an effect.

use std::fmt;

use super::layers::{PREFIX, SEPARATOR};

/// A variable that has no effect. Its value may be a password, so it is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadVariable {
    name: String,
    /// `None` for a name that starts like ours.
    instead: Option<Instead>,
}

/// What replaces a variable of envoyproxy/ratelimit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instead {
    /// The key of a setting, or the start of several keys.
    Setting(&'static str),
    /// The variable has no purpose here.
    Nothing,
    Unsupported,
}

impl fmt::Display for UnreadVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.instead {
            None => write!(
                f,
                "environment variable {name} is not read: settings are {PREFIX}{SEPARATOR}SECTION{SEPARATOR}KEY"
            ),
            Some(Instead::Setting(key)) => {
                write!(f, "environment variable {name} of envoyproxy/ratelimit is not read: set {key}")
            }
            Some(Instead::Nothing) => {
                write!(f, "environment variable {name} of envoyproxy/ratelimit is not read, and not needed")
            }
            Some(Instead::Unsupported) => {
                write!(f, "environment variable {name} of envoyproxy/ratelimit is not read: not supported")
            }
        }
    }
}

/// The given variables that have no effect although their names promise one.
pub(super) fn unread_variables(variables: impl IntoIterator<Item = (String, String)>) -> Vec<UnreadVariable> {
    let mut unread: Vec<_> = variables
        .into_iter()
        .filter(|(name, value)| !is_service_link(name, value))
        .filter_map(|(name, _)| {
            let starts_like_ours = name.to_uppercase().starts_with(&format!("{PREFIX}_"));
            // Two underscores: read, or refused with the other settings.
            let is_ours = name.to_uppercase().starts_with(&format!("{PREFIX}{SEPARATOR}"));
            let instead = envoy_ratelimit(&name);
            ((starts_like_ours && !is_ours) || instead.is_some()).then_some(UnreadVariable { name, instead })
        })
        .collect();
    unread.sort_by(|a, b| a.name.cmp(&b.name));
    unread
}

/// Whether Kubernetes sets the variable for a service, such as `RATELIMITD_PORT=tcp://10.0.0.1:8081`,
/// `RATELIMITD_SERVICE_HOST` and `RATELIMITD_PORT_8081_TCP_ADDR`; a service named `grpc` sets `GRPC_PORT`.
fn is_service_link(name: &str, value: &str) -> bool {
    let has_parts = ["_SERVICE_HOST", "_SERVICE_PORT"].iter().any(|part| name.contains(part));
    let (_, after_port) = name.rsplit_once("_PORT_").unwrap_or_default();
    let is_of_port = after_port.starts_with(|first: char| first.is_ascii_digit());
    has_parts || is_of_port || (name.ends_with("_PORT") && value.contains("://"))
}

/// What to do about a variable of envoyproxy/ratelimit; `None` for all others.
fn envoy_ratelimit(name: &str) -> Option<Instead> {
    let exact = ENVOY_RATELIMIT.iter().find(|(known, _)| *known == name);
    let by_start = || ENVOY_RATELIMIT_STARTS.iter().find(|(start, _)| name.starts_with(start));
    exact.or_else(by_start).map(|&(_, instead)| instead)
}

const ENVOY_RATELIMIT: [(&str, Instead); 62] = [
    ("HOST", Instead::Setting("server.http.address")),
    ("PORT", Instead::Setting("server.http.address")),
    ("DEBUG_HOST", Instead::Setting("server.admin.address")),
    ("DEBUG_PORT", Instead::Setting("server.admin.address")),
    ("GRPC_HOST", Instead::Setting("server.grpc.address")),
    ("GRPC_PORT", Instead::Setting("server.grpc.address")),
    ("GRPC_UDS", Instead::Unsupported),
    ("GRPC_MAX_CONNECTION_AGE", Instead::Setting("server.grpc.max_connection_age")),
    ("GRPC_MAX_CONNECTION_AGE_GRACE", Instead::Unsupported),
    ("GRPC_SERVER_USE_TLS", Instead::Unsupported),
    ("GRPC_SERVER_TLS_CERT", Instead::Unsupported),
    ("GRPC_SERVER_TLS_KEY", Instead::Unsupported),
    ("GRPC_CLIENT_TLS_CACERT", Instead::Unsupported),
    ("GRPC_CLIENT_TLS_SAN", Instead::Unsupported),
    ("LOG_LEVEL", Instead::Setting("log.level")),
    ("LOG_FORMAT", Instead::Setting("log.format")),
    ("CONFIG_TYPE", Instead::Unsupported),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", Instead::Nothing),
    ("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Instead::Nothing),
    ("RUNTIME_ROOT", Instead::Setting("rules.path")),
    ("RUNTIME_SUBDIRECTORY", Instead::Setting("rules.path")),
    ("RUNTIME_APPDIRECTORY", Instead::Setting("rules.path")),
    ("RUNTIME_IGNOREDOTFILES", Instead::Nothing),
    ("RUNTIME_WATCH_ROOT", Instead::Setting("rules.watch")),
    ("MERGE_DOMAIN_CONFIG", Instead::Setting("rules.merge_domains")),
    ("LIMIT_RESPONSE_HEADERS_ENABLED", Instead::Setting("response.headers")),
    ("LIMIT_LIMIT_HEADER", Instead::Unsupported),
    ("LIMIT_REMAINING_HEADER", Instead::Unsupported),
    ("LIMIT_RESET_HEADER", Instead::Unsupported),
    ("RESPONSE_DYNAMIC_METADATA", Instead::Setting("response.dynamic_metadata")),
    ("EXPIRATION_JITTER_MAX_SECONDS", Instead::Nothing),
    ("LOCAL_CACHE_SIZE_IN_BYTES", Instead::Nothing),
    ("NEAR_LIMIT_RATIO", Instead::Setting("near_limit_ratio")),
    ("CACHE_KEY_PREFIX", Instead::Setting("store.redis.key_prefix")),
    ("BACKEND_TYPE", Instead::Setting("store.kind")),
    ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Instead::Setting("defaults.charging")),
    ("SHADOW_MODE", Instead::Setting("shadow_mode")),
    ("QUOTA_MODE", Instead::Unsupported),
    ("REDIS_SOCKET_TYPE", Instead::Setting("store.redis.url")),
    ("REDIS_TYPE", Instead::Setting("store.redis.topology")),
    ("REDIS_URL", Instead::Setting("store.redis.url")),
    ("REDIS_AUTH", Instead::Setting("store.redis.password")),
    ("REDIS_SENTINEL_AUTH", Instead::Setting("store.redis.sentinel.password")),
    ("REDIS_POOL_SIZE", Instead::Setting("store.redis.connections")),
    ("REDIS_POOL_ON_EMPTY_BEHAVIOR", Instead::Nothing),
    ("REDIS_TLS", Instead::Setting("store.redis.url")),
    ("REDIS_TLS_CLIENT_CERT", Instead::Setting("store.redis.tls.cert_file")),
    ("REDIS_TLS_CLIENT_KEY", Instead::Setting("store.redis.tls.key_file")),
    ("REDIS_TLS_CACERT", Instead::Setting("store.redis.tls.ca_file")),
    ("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Instead::Setting("store.redis.tls.server_name")),
    ("REDIS_TIMEOUT", Instead::Setting("store.redis.timeout")),
    ("REDIS_PIPELINE_WINDOW", Instead::Nothing),
    ("REDIS_PIPELINE_LIMIT", Instead::Setting("store.redis.max_batch")),
    ("REDIS_CLUSTER_PIPELINE_PARALLELISM", Instead::Nothing),
    ("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Instead::Nothing),
    ("REDIS_PERSECOND", Instead::Unsupported),
    ("USE_PROMETHEUS", Instead::Nothing),
    ("PROMETHEUS_ADDR", Instead::Setting("server.http.address")),
    ("USE_STATSD", Instead::Unsupported),
    ("DISABLE_STATS", Instead::Unsupported),
    ("EXTRA_TAGS", Instead::Unsupported),
    ("STATS_FLUSH_INTERVAL", Instead::Nothing),
];

/// By the start of the name.
const ENVOY_RATELIMIT_STARTS: [(&str, Instead); 10] = [
    ("CONFIG_GRPC_XDS_", Instead::Unsupported),
    ("XDS_CLIENT_", Instead::Unsupported),
    ("REDIS_STARTUP_", Instead::Nothing),
    ("REDIS_PERSECOND_", Instead::Unsupported),
    ("MEMCACHE_", Instead::Unsupported),
    ("STATSD_", Instead::Unsupported),
    ("USE_DOG_STATSD", Instead::Unsupported),
    ("DOG_STATSD_", Instead::Unsupported),
    ("PROMETHEUS_", Instead::Unsupported),
    ("TRACING_", Instead::Unsupported),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn warnings(variables: &[(&str, &str)]) -> Vec<String> {
        let variables = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        unread_variables(variables).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn names_of_envoyproxy_ratelimit_and_names_that_start_like_ours_are_told() {
        let set = [
            ("REDIS_URL", "redis:6379"),
            ("REDIS_AUTH", "hunter2"),
            ("REDIS_PERSECOND_URL", "redis:6380"),
            ("USE_PROMETHEUS", "true"),
            ("RATELIMITD_STORE_KNID", "redis"),
            ("PATH", "/bin"),
            ("REDIS_PASSWORD", "hunter2"),
            ("RATELIMITD__STORE__KIND", "redis"),
        ];
        let expected = [
            "environment variable RATELIMITD_STORE_KNID is not read: settings are RATELIMITD__SECTION__KEY",
            "environment variable REDIS_AUTH of envoyproxy/ratelimit is not read: set store.redis.password",
            "environment variable REDIS_PERSECOND_URL of envoyproxy/ratelimit is not read: not supported",
            "environment variable REDIS_URL of envoyproxy/ratelimit is not read: set store.redis.url",
            "environment variable USE_PROMETHEUS of envoyproxy/ratelimit is not read, and not needed",
        ];
        assert_eq!(warnings(&set), expected);
    }

    #[test]
    fn variables_that_kubernetes_sets_for_services_are_not_told() {
        let links = [
            ("RATELIMITD_PORT", "tcp://10.0.0.1:8081"),
            ("RATELIMITD_SERVICE_HOST", "10.0.0.1"),
            ("RATELIMITD_SERVICE_PORT", "8081"),
            ("RATELIMITD_SERVICE_PORT_GRPC", "8081"),
            ("RATELIMITD_PORT_8081_TCP", "tcp://10.0.0.1:8081"),
            ("RATELIMITD_PORT_8081_TCP_ADDR", "10.0.0.1"),
            ("RATELIMITD_ADMIN_PORT", "tcp://10.0.0.2:6070"),
            ("GRPC_PORT", "tcp://10.0.0.3:9000"),
            ("MEMCACHE_SERVICE_HOST", "10.0.0.4"),
        ];
        assert_eq!(warnings(&links), [""; 0]);
        assert_eq!(warnings(&[("GRPC_PORT", "8081"), ("RATELIMITD_PORT", "8081")]).len(), 2);
    }

    #[test]
    fn every_setting_that_is_named_exists() {
        let known = Settings::catalogue();
        for (name, instead) in ENVOY_RATELIMIT {
            if let Instead::Setting(key) = instead {
                assert!(known.iter().any(|setting| setting.key == key), "{name}: {key}");
            }
        }
    }
}
