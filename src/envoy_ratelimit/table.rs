//! The variables of `envoyproxy/ratelimit`, by subject.

use super::variable::Effect::{Meaningless, Sets};
use super::variable::ValueKind::{Decimal, Duration, Flag, List, Map, Text, Whole};
use super::variable::{Effect, RatelimitVariable, common, own};

/// Names are exact: case matters, and there is no prefix.
pub(super) fn find(name: &str) -> Option<&'static RatelimitVariable> {
    OWN.iter().find(|variable| variable.name == name)
}

/// Finds a variable of the program or of its libraries.
pub(super) fn known(name: &str) -> Option<&'static RatelimitVariable> {
    OWN.iter().chain(&LIBRARIES).find(|variable| variable.name == name)
}

const GRPC: &str = "server.grpc.address";
const HTTP: &str = "server.http.address";
const ADMIN: &str = "server.admin.address";
const PATH: &str = "rules.path, rules.directory";
const SERVERS: &str = "store.redis.url";
const STARTUP: Effect =
    Meaningless("the service starts without Redis, is not ready, and retries ten times a second");
const PER_SECOND_SERVERS: &str = "store.redis.per_second.url";
const POOL_SIZE: &str = "requests share calls, so `store.redis.connections` (2 for each worker) is enough";
const WINDOW: &str =
    "requests that arrive while a call is in flight share the next one; a wait would save nothing";
const PIPELINE_LIMIT: &str = "envoyproxy/ratelimit ignores it too; `store.redis.max_batch` limits a batch";
const PARALLELISM: &str = "the nodes of a cluster are always asked at the same time";
const DIAL_TIMEOUT: &str =
    "it limits connecting only; `store.redis.timeout` limits each decision, including connecting";
const NO_POOL: &str = "there is no pool that could be empty; a full queue answers at once";
const ONLY_MEMCACHED: Effect = Meaningless("only with BACKEND_TYPE=memcache, which is refused");
const STATSD_ADDRESS: &str = "metrics.statsd.address";
const TRACES_ENDPOINT: Effect = Sets("traces.endpoint");
const STATSD_TAGS: Effect = Sets("metrics.statsd.tags");
const TRACES_HEADERS: Effect = Sets("traces.headers");
const TRACES_TIMEOUT: Effect = Sets("traces.timeout");
const TRACES_CA: Effect = Sets("traces.ca_file");
const NO_COMPRESSION: Effect = Meaningless("spans are sent uncompressed, which every collector takes");
const NO_CLIENT_CERTIFICATE: Effect =
    Meaningless("a collector that asks for a client certificate gets no spans");
const SCHEME_DECIDES: Effect = Meaningless("the scheme of the endpoint decides");

/// Every variable, in documentation order.
pub(super) static OWN: [RatelimitVariable; 115] = [
    // Listeners.
    common("HOST", Text, "0.0.0.0", Sets(HTTP)).differs(),
    common("PORT", Whole, "8080", Sets(HTTP)),
    common("DEBUG_HOST", Text, "0.0.0.0", Sets(ADMIN)).differs(),
    common("DEBUG_PORT", Whole, "6070", Sets(ADMIN)).differs(),
    common("GRPC_UDS", Text, "", Sets(GRPC)).differs(),
    common("GRPC_HOST", Text, "0.0.0.0", Sets(GRPC)).differs(),
    common("GRPC_PORT", Whole, "8081", Sets(GRPC)),
    own("GRPC_MAX_CONNECTION_AGE", Duration, "24h", Sets("server.grpc.max_connection_age")).differs(),
    own(
        "GRPC_MAX_CONNECTION_AGE_GRACE",
        Duration,
        "1h",
        Meaningless("a call takes milliseconds, and the calls of a connection that is too old are finished"),
    ),
    // TLS of the gRPC port.
    own("GRPC_SERVER_USE_TLS", Flag, "false", Sets("server.grpc.tls.cert_file")),
    own("GRPC_SERVER_TLS_CERT", Text, "", Sets("server.grpc.tls.cert_file")).differs(),
    own("GRPC_SERVER_TLS_KEY", Text, "", Sets("server.grpc.tls.key_file")).differs(),
    own("GRPC_CLIENT_TLS_CACERT", Text, "", Sets("server.grpc.tls.client_ca_file")).differs(),
    own("GRPC_CLIENT_TLS_SAN", Text, "", Sets("server.grpc.tls.client_san")),
    // The log.
    common("LOG_LEVEL", Text, "WARN", Sets("log.level")).differs(),
    common("LOG_FORMAT", Text, "text", Sets("log.format")).differs(),
    // Rules.
    own("CONFIG_TYPE", Text, "FILE", Sets("rules.path, rules.xds.address")),
    own("FORCE_START_WITHOUT_INITIAL_CONFIG", Flag, "false", Sets("rules.xds.start_without_rules")).differs(),
    own("MERGE_DOMAIN_CONFIG", Flag, "false", Sets("rules.merge_domains")).differs(),
    own("RUNTIME_ROOT", Text, "/srv/runtime_data/current", Sets(PATH)).differs(),
    own("RUNTIME_SUBDIRECTORY", Text, "", Sets(PATH)).differs(),
    own("RUNTIME_APPDIRECTORY", Text, "config", Sets(PATH)),
    own(
        "RUNTIME_IGNOREDOTFILES",
        Flag,
        "false",
        Meaningless("a file or directory whose name begins with a dot is never read, and a warning names it"),
    ),
    own("RUNTIME_WATCH_ROOT", Flag, "true", Sets(PATH)).differs(),
    own("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Flag, "false", Sets("rules.require_domain")),
    own("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Flag, "false", Sets("store.redis.ready_in_outage")).differs(),
    // Rules over xDS. Read only with `CONFIG_TYPE=GRPC_XDS_SOTW`.
    own("CONFIG_GRPC_XDS_NODE_ID", Text, "default", Sets("rules.xds.node_id")),
    own("CONFIG_GRPC_XDS_NODE_METADATA", Text, "", Sets("rules.xds.node_metadata")),
    own("CONFIG_GRPC_XDS_SERVER_URL", Text, "localhost:18000", Sets("rules.xds.address")).differs(),
    own(
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        Duration,
        "3s",
        Meaningless("envoyproxy/ratelimit ignores it too"),
    ),
    own("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Map, "", Sets("rules.xds.headers")).differs().secret(),
    own("CONFIG_GRPC_XDS_SERVER_USE_TLS", Flag, "false", Sets("rules.xds.tls.enabled")),
    own("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Text, "", Sets("rules.xds.tls.cert_file")).differs(),
    own("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Text, "", Sets("rules.xds.tls.key_file")).differs(),
    own("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Text, "", Sets("rules.xds.tls.ca_file")).differs(),
    own("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, "", Sets("rules.xds.tls.server_name")),
    own("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Duration, "10s", Sets("rules.xds.backoff.initial")).differs(),
    own("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Duration, "60s", Sets("rules.xds.backoff.max")).differs(),
    own(
        "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
        Decimal,
        "0.5",
        Meaningless("pauses double; by default those of envoyproxy/ratelimit never grow"),
    ),
    own("XDS_CLIENT_BACKOFF_JITTER", Flag, "true", Sets("rules.xds.backoff.jitter")),
    own("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Whole, "", Sets("rules.xds.max_message_bytes")),
    // Answers and limits.
    own("LIMIT_RESPONSE_HEADERS_ENABLED", Flag, "false", Sets("response.headers")),
    own("LIMIT_LIMIT_HEADER", Text, "RateLimit-Limit", Sets("response.limit_header")).differs(),
    own("LIMIT_REMAINING_HEADER", Text, "RateLimit-Remaining", Sets("response.remaining_header")).differs(),
    own("LIMIT_RESET_HEADER", Text, "RateLimit-Reset", Sets("response.reset_header")).differs(),
    own("RESPONSE_DYNAMIC_METADATA", Flag, "false", Sets("response.dynamic_metadata")),
    own(
        "EXPIRATION_JITTER_MAX_SECONDS",
        Whole,
        "300",
        Meaningless("a counter expires one second after it no longer affects decisions"),
    ),
    own(
        "LOCAL_CACHE_SIZE_IN_BYTES",
        Whole,
        "0",
        Sets("store.redis.deny_cache.enabled, store.redis.deny_cache.max_keys"),
    )
    .differs(),
    own("NEAR_LIMIT_RATIO", Decimal, "0.8", Sets("near_limit_ratio")).differs(),
    common("CACHE_KEY_PREFIX", Text, "", Sets("store.redis.key_prefix")).differs(),
    own("BACKEND_TYPE", Text, "redis", Sets("store.kind")).differs(),
    own("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Flag, "false", Sets("defaults.charging")).differs(),
    own("USE_CALENDAR_MONTH_RATE_LIMIT", Flag, "false", Sets("defaults.month_calendar")).differs(),
    common("SHADOW_MODE", Flag, "false", Sets("shadow_mode")),
    common("QUOTA_MODE", Flag, "false", Sets("quota_mode")),
    // Redis.
    own("REDIS_SOCKET_TYPE", Text, "unix", Sets(SERVERS)).differs(),
    common("REDIS_TYPE", Text, "SINGLE", Sets("store.redis.topology")),
    common(
        "REDIS_URL",
        Text,
        "/var/run/nutcracker/ratelimit.sock",
        Sets("store.redis.url, store.redis.sentinel.master"),
    )
    .differs()
    .secret(),
    common("REDIS_POOL_SIZE", Whole, "10", Meaningless(POOL_SIZE)),
    common("REDIS_AUTH", Text, "", Sets("store.redis.username, store.redis.password")).secret(),
    common("REDIS_TLS", Flag, "false", Sets(SERVERS)).differs(),
    common("REDIS_TLS_CLIENT_CERT", Text, "", Sets("store.redis.tls.cert_file, store.redis.tls.key_file")),
    common("REDIS_TLS_CLIENT_KEY", Text, "", Sets("store.redis.tls.cert_file, store.redis.tls.key_file")),
    common("REDIS_TLS_CACERT", Text, "", Sets("store.redis.tls.ca_file, store.redis.tls.system_authorities")),
    own("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Flag, "false", Sets("store.redis.tls.verify_name")),
    own("REDIS_PIPELINE_WINDOW", Duration, "0", Meaningless(WINDOW)),
    own("REDIS_PIPELINE_LIMIT", Whole, "0", Meaningless(PIPELINE_LIMIT)),
    own("REDIS_CLUSTER_PIPELINE_PARALLELISM", Whole, "1", Meaningless(PARALLELISM)),
    own("REDIS_PERSECOND", Flag, "false", Sets(PER_SECOND_SERVERS)).differs(),
    common(
        "REDIS_SENTINEL_AUTH",
        Text,
        "",
        Sets("store.redis.sentinel.username, store.redis.sentinel.password"),
    )
    .secret(),
    common("REDIS_TIMEOUT", Duration, "10s", Meaningless(DIAL_TIMEOUT)),
    own("REDIS_POOL_ON_EMPTY_BEHAVIOR", Text, "WAIT", Meaningless(NO_POOL)),
    own("REDIS_STARTUP_INITIAL_INTERVAL", Duration, "1s", STARTUP),
    own("REDIS_STARTUP_MAX_INTERVAL", Duration, "30s", STARTUP),
    own("REDIS_STARTUP_MAX_ELAPSED_TIME", Duration, "0", STARTUP),
    // The second group of Redis servers.
    own("REDIS_PERSECOND_SOCKET_TYPE", Text, "unix", Sets(PER_SECOND_SERVERS)).differs(),
    own("REDIS_PERSECOND_TYPE", Text, "SINGLE", Sets("store.redis.per_second.topology")),
    own(
        "REDIS_PERSECOND_URL",
        Text,
        "/var/run/nutcracker/ratelimitpersecond.sock",
        Sets("store.redis.per_second.url, store.redis.per_second.sentinel.master"),
    )
    .differs()
    .secret(),
    own("REDIS_PERSECOND_POOL_SIZE", Whole, "10", Meaningless(POOL_SIZE)),
    own(
        "REDIS_PERSECOND_AUTH",
        Text,
        "",
        Sets("store.redis.per_second.username, store.redis.per_second.password"),
    )
    .secret(),
    own("REDIS_PERSECOND_TLS", Flag, "false", Sets(PER_SECOND_SERVERS)).differs(),
    own(
        "REDIS_PERSECOND_SENTINEL_AUTH",
        Text,
        "",
        Sets("store.redis.per_second.sentinel.username, store.redis.per_second.sentinel.password"),
    )
    .secret(),
    own("REDIS_PERSECOND_PIPELINE_WINDOW", Duration, "0", Meaningless(WINDOW)),
    own("REDIS_PERSECOND_PIPELINE_LIMIT", Whole, "0", Meaningless(PIPELINE_LIMIT)),
    own("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Whole, "1", Meaningless(PARALLELISM)),
    own("REDIS_PERSECOND_TIMEOUT", Duration, "10s", Meaningless(DIAL_TIMEOUT)),
    own("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Text, "WAIT", Meaningless(NO_POOL)),
    // Memcached.
    common("MEMCACHE_HOST_PORT", List, "", ONLY_MEMCACHED),
    common("MEMCACHE_MAX_IDLE_CONNS", Whole, "2", ONLY_MEMCACHED),
    common("MEMCACHE_SRV", Text, "", ONLY_MEMCACHED),
    common("MEMCACHE_SRV_REFRESH", Duration, "0", ONLY_MEMCACHED),
    common("MEMCACHE_TLS", Flag, "false", ONLY_MEMCACHED),
    common("MEMCACHE_TLS_CLIENT_CERT", Text, "", ONLY_MEMCACHED),
    common("MEMCACHE_TLS_CLIENT_KEY", Text, "", ONLY_MEMCACHED),
    common("MEMCACHE_TLS_CACERT", Text, "", ONLY_MEMCACHED),
    common("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Flag, "false", ONLY_MEMCACHED),
    // Metrics.
    own("USE_DOG_STATSD", Flag, "false", Sets("metrics.statsd.format, metrics.statsd.address")),
    own("USE_DOG_STATSD_MOGRIFIERS", List, "", Sets("metrics.statsd.mogrifiers")).differs(),
    own("USE_STATSD", Flag, "true", Sets(STATSD_ADDRESS)).differs(),
    common("STATSD_HOST", Text, "localhost", Sets(STATSD_ADDRESS)),
    common("STATSD_PORT", Whole, "8125", Sets(STATSD_ADDRESS)),
    common("EXTRA_TAGS", Map, "", Sets("metrics.extra_tags")).differs(),
    own("STATS_FLUSH_INTERVAL", Duration, "10s", Sets("metrics.statsd.flush_interval")).differs(),
    own("DISABLE_STATS", Flag, "false", Sets("metrics.address, metrics.statsd.address")).differs(),
    common("USE_PROMETHEUS", Flag, "false", Sets("metrics.address")).differs(),
    common("PROMETHEUS_ADDR", Text, ":9090", Sets("metrics.address")).differs(),
    common("PROMETHEUS_PATH", Text, "/metrics", Sets("metrics.path")).differs(),
    own(
        "PROMETHEUS_MAPPER_YAML",
        Text,
        "",
        Meaningless(
            "the file is not read: names and labels of the metrics stay those of the default \
         mapping; `PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS` sets the unit of the response \
         times",
        ),
    ),
    own("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", Flag, "false", Sets("metrics.response_time")).differs(),
    // Traces.
    common("TRACING_ENABLED", Flag, "false", TRACES_ENDPOINT).differs(),
    common("TRACING_SERVICE_NAME", Text, "RateLimit", Sets("traces.service_name")),
    common("TRACING_SERVICE_NAMESPACE", Text, "", Sets("traces.service_namespace")),
    common("TRACING_SERVICE_INSTANCE_ID", Text, "", Sets("traces.service_instance_id")),
    common("TRACING_EXPORTER_PROTOCOL", Text, "http", Sets("traces.protocol")),
    common("TRACING_SAMPLING_RATE", Decimal, "1", Sets("traces.sampled_share")).differs(),
];

/// Variables that its libraries read. They do not reveal whose environment it is.
pub(super) static LIBRARIES: [RatelimitVariable; 21] = [
    common("STATSD_PROTOCOL", Text, "tcp", Sets(STATSD_ADDRESS)),
    common("DD_ENTITY_ID", Text, "", STATSD_TAGS).differs(),
    common("DD_ENV", Text, "", STATSD_TAGS).differs(),
    common("DD_SERVICE", Text, "", STATSD_TAGS).differs(),
    common("DD_VERSION", Text, "", STATSD_TAGS).differs(),
    common("OTEL_EXPORTER_OTLP_ENDPOINT", Text, "", TRACES_ENDPOINT).differs(),
    common("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", Text, "", TRACES_ENDPOINT),
    common("OTEL_EXPORTER_OTLP_HEADERS", Text, "", TRACES_HEADERS).secret(),
    common("OTEL_EXPORTER_OTLP_TRACES_HEADERS", Text, "", TRACES_HEADERS).secret(),
    common("OTEL_EXPORTER_OTLP_TIMEOUT", Text, "", TRACES_TIMEOUT).differs(),
    common("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", Text, "", TRACES_TIMEOUT).differs(),
    common("OTEL_EXPORTER_OTLP_CERTIFICATE", Text, "", TRACES_CA),
    common("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", Text, "", TRACES_CA),
    common("OTEL_EXPORTER_OTLP_COMPRESSION", Text, "", NO_COMPRESSION),
    common("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", Text, "", NO_COMPRESSION),
    common("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", Text, "", NO_CLIENT_CERTIFICATE),
    common("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", Text, "", NO_CLIENT_CERTIFICATE),
    common("OTEL_EXPORTER_OTLP_CLIENT_KEY", Text, "", NO_CLIENT_CERTIFICATE),
    common("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", Text, "", NO_CLIENT_CERTIFICATE),
    common("OTEL_EXPORTER_OTLP_INSECURE", Text, "", SCHEME_DECIDES),
    common("OTEL_EXPORTER_OTLP_TRACES_INSECURE", Text, "", SCHEME_DECIDES),
];
