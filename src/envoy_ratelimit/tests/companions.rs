//! For the test of each variable's example: the variables without which it has no effect.

/// Variables that give the others an effect: TLS, a certificate with its key, sentinels, a socket, an xDS server, a
/// second Redis, the metrics' destination.
pub(super) fn companions(name: &str) -> Vec<(&'static str, &'static str)> {
    let (kind, url) = match name {
        "REDIS_SENTINEL_AUTH" | "REDIS_PERSECOND_SENTINEL_AUTH" => ("SENTINEL", "master,s:26379"),
        _ => ("SINGLE", "redis:6379"),
    };
    let is_of_xds = name.contains("XDS") || name == "FORCE_START_WITHOUT_INITIAL_CONFIG";
    let rules_from = if is_of_xds { "GRPC_XDS_SOTW" } else { "FILE" };
    let all = [
        ("GRPC_SERVER_USE_TLS", "true"),
        ("GRPC_SERVER_TLS_CERT", "cert.pem"),
        ("GRPC_SERVER_TLS_KEY", "key.pem"),
        ("GRPC_CLIENT_TLS_CACERT", "ca.pem"),
        ("CONFIG_TYPE", rules_from),
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "cert.pem"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "key.pem"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "ca.pem"),
        ("USE_PROMETHEUS", "true"),
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CLIENT_CERT", "cert.pem"),
        ("REDIS_TLS_CLIENT_KEY", "key.pem"),
        ("REDIS_TYPE", kind),
        ("REDIS_URL", url),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_TYPE", kind),
        ("REDIS_PERSECOND_URL", url),
        ("USE_DOG_STATSD", "true"),
        ("TRACING_ENABLED", "true"),
        ("DOG_STATSD_MOGRIFIER_DOMAIN_PATTERN", "a"),
        ("DOG_STATSD_MOGRIFIER_DOMAIN_NAME", "b"),
        ("DOG_STATSD_MOGRIFIER_HITS_PATTERN", "c"),
        ("DOG_STATSD_MOGRIFIER_HITS_NAME", "d"),
    ];
    all.into_iter().filter(|(companion, _)| *companion != name).collect()
}
